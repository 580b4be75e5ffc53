// Short prompts by captured graphs beside llama_decode: the same logits, and the same KV by what
// the next token makes of it, bit by bit, for every length behind texts of several lengths; and the
// graphs that quiet time leaves. It prints what the start-up test found.
//
//   prompt_graphs_test MODEL.gguf [MOST]
//
// MOST: longer ones have none here, and it says why.
#include "device/prompt/prompt_graphs.h"

#include <llama.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "decode/counters.h"
#include "engine/stepper_factory.h"
#include "model/loop_memory.h"
#include "model/model.h"

using namespace unpaced;

namespace {

using Clock = std::chrono::steady_clock;
using Logits = std::vector<float>;

int n_failed = 0;

void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
  if (!holds) ++n_failed;
}

// What a prompt left, and how long it took.
struct Left {
  Logits logits;
  Logits next;  // of a token after it
  double ms = 0;
};

class Prompts {
 public:
  explicit Prompts(const Model& model)
      : context_(model.context()),
        n_vocab_(static_cast<std::size_t>(model.n_vocab())),
        graphs_(context_, model.n_vocab(), StepKernels::kOwn, std::chrono::seconds(10), counters_) {
  }

  void test_start(std::int32_t most) {
    const Clock::time_point begin = Clock::now();
    graphs_.test();
    std::printf("the start-up test took %.1f ms\n", ms_since(begin));
    for (const PromptLengthReport& told : graphs_.report()) {
      if (told.own_ms > 0)
        std::printf("  %d tokens: own %.2f ms, llama_decode %.2f ms, capture %.1f ms\n",
                    told.n_tokens, told.own_ms, told.decode_ms, told.capture_ms);
      expect(told.why.empty() == (told.n_tokens <= most),
             std::to_string(told.n_tokens) + " tokens are " +
                 (told.why.empty() ? "served" : "not: " + told.why));
    }
  }

  void compare(std::int32_t n_before, std::int32_t n_tokens) {
    llama_memory_clear(llama_get_memory(context_), true);
    Slot slot;
    slot.cells = tokens(3, n_before);
    if (n_before > 0) decode(slot.cells);
    const std::vector<TokenId> prompt = tokens(1009 * n_tokens + n_before, n_tokens);
    const Left expected = by_decode(slot, prompt);
    const Left made = by_graph(slot, prompt);
    const std::string what =
        std::to_string(n_tokens) + " tokens behind " + std::to_string(n_before);
    expect(made.logits == expected.logits && made.next == expected.next,
           what + ": " + std::to_string(n_different(made.logits, expected.logits)) + " and " +
               std::to_string(n_different(made.next, expected.next)) + " logits differ; " +
               std::to_string(made.ms) + " ms, llama_decode " + std::to_string(expected.ms));
  }

  // A conversation goes on in a window that no prompt was in yet, or another one begins.
  void test_quiet_time(std::int32_t most) {
    llama_memory_clear(llama_get_memory(context_), true);
    Slot slot;
    slot.cells = tokens(5, kBehind);
    decode(slot.cells);
    int n_captured = 0;
    while (graphs_.wants_quiet_time() && graphs_.use_quiet_time()) ++n_captured;
    std::printf("quiet time: %d graphs\n", n_captured);
    for (std::int32_t n = 16; n <= most; ++n) expect_graph(slot, n);
    llama_memory_clear(llama_get_memory(context_), true);
    for (std::int32_t n = 16; n <= most; ++n) expect_graph(Slot{}, n);
  }

 private:
  static constexpr std::int32_t kBehind = 500;  // another window than compare()'s with any prompt

  void expect_graph(const Slot& slot, std::int32_t n_tokens) {
    const bool is_there = graphs_.compute(slot, tokens(n_tokens, n_tokens)) != nullptr;
    take_back(slot);
    expect(is_there, std::to_string(n_tokens) + " tokens behind " + std::to_string(slot.n_cells()) +
                         " have their graph after quiet time");
  }

  static double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  static std::size_t n_different(const Logits& a, const Logits& b) {
    std::size_t n = a.size() == b.size() ? 0 : std::max(a.size(), b.size());
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += a[i] == b[i] ? 0 : 1;
    return n;
  }

  [[nodiscard]] std::vector<TokenId> tokens(std::int32_t seed, std::int32_t n) const {
    std::vector<TokenId> made;
    for (std::int32_t i = 0; i < n; ++i)
      made.push_back(static_cast<TokenId>((7919U * static_cast<std::uint32_t>(seed + i) + 13U) %
                                          static_cast<std::uint32_t>(n_vocab_)));
    return made;
  }

  Logits decode(std::vector<TokenId> all) {
    const auto n = static_cast<std::int32_t>(all.size());
    if (llama_decode(context_, llama_batch_get_one(all.data(), n)) != 0)
      throw std::runtime_error("llama_decode failed");
    const float* row = llama_get_logits_ith(context_, -1);
    return {row, row + n_vocab_};
  }

  void take_back(const Slot& slot) {
    llama_memory_seq_rm(llama_get_memory(context_), slot.sequence, slot.n_cells(), -1);
  }

  Left by_decode(const Slot& slot, const std::vector<TokenId>& prompt) {
    Left left;
    for (int round = 0; round < 2; ++round) {
      take_back(slot);
      const Clock::time_point begin = Clock::now();
      left.logits = decode(prompt);
      left.ms = ms_since(begin);
    }
    left.next = decode({11});
    take_back(slot);
    return left;
  }

  Left by_graph(const Slot& slot, const std::vector<TokenId>& prompt) {
    Left left;
    // The first time it may say which graph it lacks.
    for (int round = 0; round < 3; ++round) {
      take_back(slot);
      const Clock::time_point begin = Clock::now();
      const float* row = graphs_.compute(slot, prompt);
      left.ms = ms_since(begin);
      if (row != nullptr)
        left.logits.assign(row, row + n_vocab_);
      else if (!graphs_.use_idle_time())
        return left;
    }
    left.next = decode({11});
    take_back(slot);
    return left;
  }

  llama_context* context_;
  std::size_t n_vocab_;
  Counters counters_;
  PromptGraphs graphs_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  try {
    const std::int32_t most = argc == 3 ? std::stoi(argv[2]) : kMaxPromptTokens;
    EngineConfig config;
    config.model_path = argv[1];
    config.n_ctx = 1024;
    config.flash_attn = 1;
    config.warmup = false;
    static_cast<void>(configure_device(config));
    init_backends();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    const Model model(config, progress, stop);
    Prompts prompts(model);
    prompts.test_start(most);
    for (const std::int32_t n_before : {0, 60, 300}) {
      for (std::int32_t n = 2; n <= most; ++n) prompts.compare(n_before, n);
    }
    prompts.test_quiet_time(most);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
