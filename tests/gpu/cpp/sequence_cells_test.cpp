// KV cells that change hands by llama.cpp's lists of a sequence's cells, and by llama.h: the same
// random calls leave the same books, and the next search for free cells begins at the same one.
//
//   sequence_cells_test MODEL.gguf [CELLS [ROUNDS]]
//
// It also prints what it takes to free the cells of a short sequence.
#include <llama.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "device/llama/booked_cells.h"
#include "engine/stepper_factory.h"
#include "model/model.h"

using namespace unpaced;

namespace {

constexpr std::int32_t kSequences = 8;
constexpr std::int32_t kPlanned = 16;

using Books = std::vector<std::int32_t>;

class Player {
 public:
  Player(llama_context* context, LlamaBridge& bridge)
      : memory_(llama_get_memory(context)), bridge_(bridge) {}

  // The books after each of the calls that `seed` says, from an empty cache on.
  std::vector<Books> play(SequenceCells& sequences, std::uint32_t seed, std::int32_t n_calls) {
    llama_memory_clear(memory_, false);
    std::mt19937 random(seed);
    std::vector<Books> all;
    for (std::int32_t i = 0; i < n_calls; ++i) {
      call(sequences, random);
      all.push_back(books());
    }
    return all;
  }

 private:
  void call(SequenceCells& sequences, std::mt19937& random) {
    const auto any = [&random](std::int32_t n) {
      return std::uniform_int_distribution<std::int32_t>(0, n - 1)(random);
    };
    const std::int32_t sequence = any(kSequences), other = any(kSequences);
    const std::int32_t n = n_cells(sequence);
    switch (any(16) == 0 ? 5 : any(5)) {
      case 0:
      case 1: {
        const std::vector<TokenId> tokens(static_cast<std::size_t>(1 + any(100)), 1);
        std::vector<std::int32_t> cells(tokens.size());
        static_cast<void>(bridge_.claim(sequence, n, tokens, cells));
        return;
      }
      case 2:
        return sequences.remove(sequence, any(n + 2));
      case 3:
        if (n == 0) return;
        return cut_twice(sequences, sequence, any(n), any(n + 1));
      case 5:
        for (llama_seq_id each = 0; each < kSequences; ++each) sequences.remove(each, 0);
        return sequences.search_anew(sequence);
      default:
        if (sequence == other || n_cells(other) > 0 || n == 0) return;
        return sequences.share(sequence, other, 0, 1 + any(n));
    }
  }

  // Cells [first, last) go, then what is behind: a search begins at the lowest free one.
  void cut_twice(SequenceCells& sequences, std::int32_t sequence, std::int32_t first,
                 std::int32_t last) {
    if (first < last) sequences.remove(sequence, first, last);
    sequences.remove(sequence, first);
  }

  [[nodiscard]] std::int32_t n_cells(std::int32_t sequence) const {
    return llama_memory_seq_pos_max(memory_, sequence) + 1;
  }

  [[nodiscard]] Books books() {
    Books all;
    for (std::int32_t sequence = 0; sequence < kSequences; ++sequence) {
      Books cells(static_cast<std::size_t>(n_cells(sequence)));
      const bool is_whole = bridge_.find(sequence, 0, cells);
      all.push_back(is_whole ? static_cast<std::int32_t>(cells.size()) : -1);
      all.insert(all.end(), cells.begin(), cells.end());
    }
    const CellPlan plan = bridge_.plan(0, kPlanned);
    all.insert(all.end(), plan.cells.begin(), plan.cells.end());
    all.push_back(plan.n_used);
    all.push_back(bridge_.unused_cell(0));
    return all;
  }

  const llama_memory_t memory_;
  LlamaBridge& bridge_;
};

// Microseconds of taking its 16 cells from the only sequence that has any; the median.
double microseconds(SequenceCells& sequences, LlamaBridge& bridge, llama_memory_t memory) {
  constexpr std::size_t kTurns = 101;
  llama_memory_clear(memory, false);
  const std::vector<TokenId> tokens(16, 1);
  Books cells(tokens.size());
  std::vector<double> times;
  for (std::size_t i = 0; i < kTurns; ++i) {
    static_cast<void>(bridge.claim(0, 0, tokens, cells));
    const auto begin = std::chrono::steady_clock::now();
    sequences.remove(0, 0);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
  }
  std::ranges::sort(times);
  return times[kTurns / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    const std::int32_t n_rounds = argc > 3 ? std::stoi(argv[3]) : 20;
    EngineConfig config;
    config.model_path = argv[1];
    config.n_ctx = argc > 2 ? std::stoi(argv[2]) : 2048;
    config.n_slots = kSequences;
    config.kv_unified = true;
    config.flash_attn = 1;
    config.warmup = false;
    static_cast<void>(configure_device(config));
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    init_backends();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    Model model(config, progress, stop);
    LlamaBridge bridge(model.context());
    SequenceCells by_llama(model.context());
    BookedCells booked(model.context(), bridge);
    Player player(model.context(), bridge);
    constexpr std::int32_t kCalls = 300;
    std::int32_t n_wrong = 0;
    for (std::int32_t round = 0; round < n_rounds; ++round) {
      const auto seed = static_cast<std::uint32_t>(round);
      const std::vector<Books> expected = player.play(by_llama, seed, kCalls);
      const std::vector<Books> made = player.play(booked, seed, kCalls);
      const auto [where, _] = std::ranges::mismatch(expected, made);
      if (where == expected.end()) continue;
      ++n_wrong;
      std::printf("round %d differs after call %d\n", round,
                  static_cast<std::int32_t>(where - expected.begin()));
    }
    const llama_memory_t memory = llama_get_memory(model.context());
    std::printf("%d cells: 16 removed in %.1f us, by llama.h %.1f\n", bridge.n_cells(),
                microseconds(booked, bridge, memory), microseconds(by_llama, bridge, memory));
    std::printf("%s: %d rounds of %d calls, %d differ\n", n_wrong == 0 ? "ok" : "FAILED", n_rounds,
                kCalls, n_wrong);
    return n_wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
