// The self-test of steps that several sequences make together.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/loop/loop_self_test.h"
#include "host/token_batch.h"
#include "sampling/sampler.h"

namespace unpaced {
namespace {

constexpr std::int32_t kSteps = 3;
constexpr std::int32_t kPromptTokens = 4;  // of the first one; each has one more than the last

class LaneTest {
 public:
  LaneTest(const Model& model, LlamaBridge& bridge, DeviceLoop& loop);
  ~LaneTest();
  LaneTest(const LaneTest&) = delete;
  LaneTest& operator=(const LaneTest&) = delete;

  void decode_prompts();
  // The first n_rows sequences.
  void check(std::size_t n_rows);

 private:
  struct Step {
    std::vector<float> logits;    // row by row
    std::vector<TokenId> tokens;  // drawn from them
  };

  [[nodiscard]] std::span<Slot* const> members(std::size_t n_rows) const {
    return std::span(members_).first(n_rows);
  }
  // As they were after their prompts.
  void go_back(std::size_t n_rows);
  void decode(const TokenBatch& batch);
  [[nodiscard]] std::vector<Step> decode_steps(std::size_t n_rows);
  void compare_logits(std::size_t n_rows, const std::vector<Step>& expected);
  void compare_tokens(std::size_t n_rows, const std::vector<Step>& expected);

  const Model& model_;
  LlamaBridge& bridge_;
  DeviceLoop& loop_;
  const std::size_t n_vocab_;
  std::vector<Slot> slots_;
  std::vector<Slot*> members_;
  std::vector<RequestSpec> specs_;
  std::vector<Sampler> samplers_;
  std::vector<std::vector<TokenId>> prompts_;
};

LaneTest::LaneTest(const Model& model, LlamaBridge& bridge, DeviceLoop& loop)
    : model_(model),
      bridge_(bridge),
      loop_(loop),
      n_vocab_(static_cast<std::size_t>(model.n_vocab())),
      slots_(loop.n_lanes()),
      specs_(loop.n_lanes()) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    RequestSpec& spec = specs_[i];
    spec.max_tokens = kSteps;
    // One in two draws from the whole row.
    spec.sampling.seed = static_cast<std::uint32_t>(i);
    if (id % 2 == 0) {
      spec.sampling.temperature = 0.0F;
    } else {
      spec.sampling.top_k = 0;
    }
    samplers_.emplace_back(model.n_vocab(), model.n_ctx_slot());
    std::vector<TokenId>& prompt = prompts_.emplace_back();
    for (std::int32_t k = 0; k < kPromptTokens + id; ++k) {
      prompt.push_back(static_cast<TokenId>((7919LL * k + 13 + 101LL * id) % model.n_vocab()));
    }
    Slot& slot = slots_[i];
    slot.id = slot.sequence = id;
    slot.spec = &spec;
    slot.phase = SlotPhase::kDecode;
    members_.push_back(&slot);
  }
}

LaneTest::~LaneTest() { loop_.unseat(); }

void LaneTest::decode(const TokenBatch& batch) {
  if (llama_decode(model_.context(), batch.get()) != 0) {
    throw std::runtime_error("self-test: llama_decode failed");
  }
}

void LaneTest::decode_prompts() {
  const std::size_t n_most = prompts_.back().size();
  TokenBatch batch(static_cast<std::int32_t>(slots_.size()));
  for (std::size_t k = 0; k < n_most; ++k) {
    batch.clear();
    for (const Slot& slot : slots_) {
      const std::vector<TokenId>& prompt = prompts_[static_cast<std::size_t>(slot.id)];
      if (k >= prompt.size()) continue;
      batch.add(prompt[k], static_cast<llama_pos>(k), slot.sequence, true);
    }
    decode(batch);
  }
}

void LaneTest::go_back(std::size_t n_rows) {
  for (Slot* slot : members(n_rows)) {
    const auto i = static_cast<std::size_t>(slot->id);
    const auto n_prompt = static_cast<llama_pos>(prompts_[i].size());
    llama_memory_seq_rm(llama_get_memory(model_.context()), slot->sequence, n_prompt, -1);
    slot->cells = prompts_[i];
    slot->cells.reserve(prompts_[i].size() + kSteps);
    slot->next_token = static_cast<TokenId>((31 * i + 7) % n_vocab_);
    slot->n_decoded = 0;
    samplers_[i].reset(specs_[i].sampling, {}, nullptr, slot->cells);
  }
}

std::vector<LaneTest::Step> LaneTest::decode_steps(std::size_t n_rows) {
  std::vector<Step> steps;
  TokenBatch batch(static_cast<std::int32_t>(n_rows));
  for (std::int32_t step = 0; step < kSteps; ++step) {
    batch.clear();
    for (Slot* slot : members(n_rows)) {
      batch.add(slot->next_token, slot->n_cells(), slot->sequence, true);
      slot->cells.push_back(slot->next_token);
    }
    decode(batch);
    Step& made = steps.emplace_back();
    for (Slot* slot : members(n_rows)) {
      const float* row = llama_get_logits_ith(model_.context(), slot->id);
      made.logits.insert(made.logits.end(), row, row + n_vocab_);
      Sampler& sampler = samplers_[static_cast<std::size_t>(slot->id)];
      slot->next_token = sampler.sample(row).token;
      sampler.accept(slot->next_token);
      made.tokens.push_back(slot->next_token);
    }
  }
  return steps;
}

void LaneTest::compare_logits(std::size_t n_rows, const std::vector<Step>& expected) {
  std::vector<float> rows(n_rows * n_vocab_);
  std::vector<std::int32_t> sequences;
  for (const Slot* slot : members(n_rows)) sequences.push_back(slot->sequence);
  bridge_.synchronize_context();
  for (const Step& step : expected) {
    const std::vector<CellPlan> plans = bridge_.plan(sequences, 1);
    if (plans.front().cells.empty()) throw std::runtime_error("self-test: no KV cell");
    std::int32_t n_used = plans.front().n_used;
    for (const CellPlan& plan : plans) n_used = std::max(n_used, plan.cells.front() + 1);
    const auto n = static_cast<std::int32_t>(n_rows);
    const Window window{plans.front().stream, bridge_.window_cells(n_used), n, n};
    bridge_.open(window);
    loop_.inputs().upload(bridge_, members(n_rows), plans, window);
    loop_.run_graph();
    cuda_check(cudaMemcpyAsync(rows.data(), bridge_.logits(), rows.size() * sizeof(float),
                               cudaMemcpyDeviceToHost, bridge_.stream()),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(bridge_.stream()), "cudaStreamSynchronize");
    if (std::memcmp(rows.data(), step.logits.data(), rows.size() * sizeof(float)) != 0) {
      throw std::runtime_error("self-test: the logits of " + std::to_string(n_rows) +
                               " sequences at once differ from llama_decode's");
    }
    for (std::size_t i = 0; i < n_rows; ++i) {
      Slot& slot = *members_[i];
      bridge_.commit(slot.sequence, slot.n_cells(), plans[i], {&slot.next_token, 1});
      slot.cells.push_back(slot.next_token);
      slot.next_token = step.tokens[i];
    }
  }
}

void LaneTest::compare_tokens(std::size_t n_rows, const std::vector<Step>& expected) {
  std::size_t n_steps = 0;
  while (n_steps < expected.size()) {
    const bool is_launched = loop_.launch(members(n_rows), [this](const Slot& slot) -> Sampler& {
      return samplers_[static_cast<std::size_t>(slot.id)];
    });
    if (!is_launched) throw std::runtime_error("self-test: no KV cell");
    while (loop_.is_flying()) {
      const DeviceLoop::Progress news = loop_.wait_for_news(false);
      if (news.exit == LoopExit::kNonFinite) {
        throw std::runtime_error("self-test: the device found no finite logit");
      }
      for (; loop_.n_taken() < news.n_steps; ++n_steps) {
        for (std::size_t i = 0; i < n_rows; ++i) {
          Slot& slot = *members_[i];
          slot.next_token = loop_.flight()[i]->take().token;
          ++slot.n_decoded;
          if (slot.next_token == expected[n_steps].tokens[i]) continue;
          throw std::runtime_error("self-test: of " + std::to_string(n_rows) +
                                   " sequences at once the device drew token " +
                                   std::to_string(slot.next_token) + ", not " +
                                   std::to_string(expected[n_steps].tokens[i]));
        }
      }
      if (news.exit == LoopExit::kNone) {
        loop_.launch_ahead();
      } else {
        loop_.land();
      }
    }
  }
  loop_.wait_for_stream();
  loop_.unseat();
}

void LaneTest::check(std::size_t n_rows) {
  go_back(n_rows);
  const std::vector<Step> expected = decode_steps(n_rows);
  go_back(n_rows);
  compare_logits(n_rows, expected);
  go_back(n_rows);
  compare_tokens(n_rows, expected);
  go_back(n_rows);
}

}  // namespace

void test_lanes(const Model& model, LlamaBridge& bridge, DeviceLoop& loop) {
  if (loop.n_lanes() < 2) return;
  const llama_memory_t memory = llama_get_memory(model.context());
  llama_memory_clear(memory, true);
  LaneTest test(model, bridge, loop);
  test.decode_prompts();
  for (std::size_t n_rows = 2; n_rows <= loop.n_lanes(); ++n_rows) test.check(n_rows);
  llama_memory_clear(memory, true);
}

}  // namespace unpaced
