#include "device/loop/self_test/loop_self_test.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "device/loop/self_test/test_steps.h"
#include "sampling/sampler.h"

namespace unpaced {
namespace {

constexpr std::int32_t kSteps = 6;       // across the end of the first window
constexpr std::int32_t kLaterSteps = 2;  // and of a later one

TokenId argmax(const float* logits, std::int32_t n) {
  return static_cast<TokenId>(std::max_element(logits, logits + n) - logits);
}

// The sequence's next tokens; the last one's logits are there then.
void decode(llama_context* context, std::int32_t sequence, std::int32_t position,
            std::span<const TokenId> tokens) {
  const auto n_batch = static_cast<std::size_t>(llama_n_batch(context));
  const std::unique_ptr<llama_batch, void (*)(llama_batch*)> batch(
      new llama_batch(llama_batch_init(static_cast<std::int32_t>(n_batch), 0, 1)),
      [](llama_batch* made) {
        llama_batch_free(*made);
        delete made;
      });
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(n_batch, tokens.size()));
    tokens = tokens.subspan(part.size());
    batch->n_tokens = static_cast<std::int32_t>(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) {
      batch->token[i] = part[i];
      batch->pos[i] = position++;
      batch->n_seq_id[i] = 1;
      batch->seq_id[i][0] = sequence;
      batch->logits[i] = static_cast<std::int8_t>(i + 1 == part.size());
    }
    if (llama_decode(context, *batch) != 0)
      throw std::runtime_error("self-test: llama_decode failed");
  }
}

class LoopTest {
 public:
  LoopTest(const Model& model, LlamaBridge& bridge, DeviceLoop& loop)
      : model_(model),
        bridge_(bridge),
        loop_(loop),
        sampler_(model.n_vocab(), model.n_ctx_slot()) {}

  // With more of a prompt before them, so that the steps cross the end of the window of `border`
  // cells if the context is so large. False: there is no room for a step.
  [[nodiscard]] bool check_steps(Slot& slot, std::int32_t border, std::int32_t n_steps);

 private:
  void compare_logits(Slot& slot, const std::vector<std::vector<float>>& expected,
                      std::span<const TokenId> tokens);
  // The first token is given, the GPU draws the others.
  void compare_tokens(Slot& slot, std::span<const TokenId> tokens, const SamplingParams& sampling);
  // A token from the whole row: all the blocks that the card has for that draw it.
  void compare_draw(Slot& slot, const std::vector<float>& row);
  // Takes what the GPU has published: these tokens, from slot.n_decoded on.
  void take(const DeviceLoop::Progress& progress, Slot& slot, std::span<const TokenId> tokens);

  const Model& model_;
  LlamaBridge& bridge_;
  DeviceLoop& loop_;
  Sampler sampler_;
};

bool LoopTest::check_steps(Slot& slot, std::int32_t border, std::int32_t n_steps) {
  llama_context* context = model_.context();
  const std::int32_t n_vocab = model_.n_vocab();
  const std::int32_t n_used = bridge_.plan(slot.sequence, 1).n_used;
  const std::int32_t room =
      std::min(model_.n_ctx_slot() - slot.n_cells(), bridge_.n_cells() - n_used) - n_steps - 2;
  const std::int32_t n_prompt = std::min(border - n_steps / 2 - n_used, room);
  if (n_prompt < 1) return false;
  const std::int32_t begin = slot.n_cells();
  for (std::int32_t i = begin; i < begin + n_prompt; ++i) {
    slot.cells.push_back(static_cast<TokenId>((7919LL * i + 13 + slot.id) % n_vocab));
  }
  const std::vector<TokenId> prompt = slot.cells;
  const auto n_before = static_cast<std::int32_t>(prompt.size());
  decode(context, slot.sequence, begin, std::span(prompt).subspan(static_cast<std::size_t>(begin)));
  std::vector<TokenId> tokens{argmax(llama_get_logits_ith(context, -1), n_vocab)};
  std::vector<std::vector<float>> logits;
  for (std::int32_t i = 0; i < n_steps; ++i) {
    decode(context, slot.sequence, n_before + i, std::array{tokens.back()});
    const float* row = llama_get_logits_ith(context, -1);
    logits.emplace_back(row, row + n_vocab);
    tokens.push_back(argmax(row, n_vocab));
  }
  const auto back = [&] {
    llama_memory_seq_rm(llama_get_memory(context), slot.sequence, n_before, -1);
    slot.cells = prompt;
    slot.cells.reserve(prompt.size() + static_cast<std::size_t>(n_steps));
    slot.next_token = tokens.front();
  };
  back();
  compare_logits(slot, logits, tokens);
  back();
  compare_draw(slot, logits.front());
  back();
  SamplingParams greedy;
  greedy.temperature = 0.0F;
  compare_tokens(slot, tokens, greedy);
  return true;
}

void LoopTest::compare_logits(Slot& slot, const std::vector<std::vector<float>>& expected,
                              std::span<const TokenId> tokens) {
  std::vector<float> row(static_cast<std::size_t>(model_.n_vocab()));
  bridge_.synchronize_context();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int32_t position = slot.n_cells();
    const CellPlan plan = bridge_.plan(slot.sequence, 1);
    if (plan.cells.empty()) throw std::runtime_error("self-test: no KV cell");
    const std::int32_t n_used = std::max(plan.n_used, plan.cells.front() + 1);
    const Window window{plan.stream, bridge_.window_cells(n_used)};
    bridge_.open(window);
    Slot* const row_slot = &slot;
    static_cast<void>(loop_.inputs().upload(bridge_, {&row_slot, 1}, {&plan, 1}, window));
    run_graph(loop_, bridge_, row);
    if (std::memcmp(row.data(), expected[i].data(), row.size() * sizeof(float)) != 0) {
      throw std::runtime_error(
          "self-test: the decode graph's logits differ from llama_decode's "
          "at position " +
          std::to_string(position) + " of slot " + std::to_string(slot.id));
    }
    const TokenId input = slot.next_token;
    bridge_.commit(slot.sequence, position, plan, {&input, 1});
    slot.cells.push_back(input);
    slot.next_token = tokens[i + 1];
  }
}

void LoopTest::compare_draw(Slot& slot, const std::vector<float>& row) {
  SamplingParams sampling;
  sampling.seed = 1;
  sampling.top_k = 0;
  Sampler host(model_.n_vocab(), model_.n_ctx_slot());
  host.reset(sampling, {}, nullptr, slot.cells);
  compare_tokens(slot, std::array{slot.next_token, host.sample(row.data()).token}, sampling);
}

void LoopTest::compare_tokens(Slot& slot, std::span<const TokenId> tokens,
                              const SamplingParams& sampling) {
  RequestSpec spec;
  spec.max_tokens = static_cast<std::int32_t>(tokens.size()) - 1;
  spec.sampling = sampling;
  slot.spec = &spec;
  slot.phase = SlotPhase::kDecode;  // its lane keeps the sampler's state between launches
  slot.n_decoded = 0;
  sampler_.reset(spec.sampling, {}, nullptr, slot.cells);
  while (slot.n_decoded < spec.max_tokens) {
    Slot* const members[] = {&slot};
    const bool is_launched =
        loop_.launch(members, [this](const Slot&) -> Sampler& { return sampler_; });
    if (!is_launched) throw std::runtime_error("self-test: no KV cell");
    take_flight(loop_, [&](const DeviceLoop::Progress& news) { take(news, slot, tokens); });
  }
  loop_.wait_for_stream();
  loop_.unseat();
  slot.phase = SlotPhase::kIdle;
  slot.spec = nullptr;
}

void LoopTest::take(const DeviceLoop::Progress& progress, Slot& slot,
                    std::span<const TokenId> tokens) {
  while (loop_.lane().n_taken() < progress.n_steps) {
    const TokenId token = loop_.lane().take().token;
    const TokenId expected = tokens[static_cast<std::size_t>(++slot.n_decoded)];
    if (token != expected) {
      throw std::runtime_error("self-test: the device drew token " + std::to_string(token) +
                               ", not " + std::to_string(expected));
    }
    slot.next_token = token;
  }
}

}  // namespace

void test_loop(const Model& model, LlamaBridge& bridge, DeviceLoop& loop, std::int32_t n_slots) {
  const llama_memory_t memory = llama_get_memory(model.context());
  llama_memory_clear(memory, true);
  const std::int32_t border = bridge.window_cells(1);
  LoopTest test(model, bridge, loop);
  Slot slot;
  if (!test.check_steps(slot, border, kSteps)) {
    throw std::runtime_error("self-test: the context is too small");
  }
  // The last slot in a later window: in a stream of its own, or beside the first one's cells, which
  // it must not see.
  if (n_slots > 1) slot.cells.clear();
  slot.id = slot.sequence = n_slots - 1;
  static_cast<void>(test.check_steps(slot, 2 * border, kLaterSteps));
  llama_memory_clear(memory, true);
}

}  // namespace unpaced
