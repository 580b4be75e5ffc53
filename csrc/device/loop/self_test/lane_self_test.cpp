#include "device/loop/self_test/lane_self_test.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "device/loop/self_test/test_steps.h"
#include "device/phases/trials/timed_graph.h"
#include "host/token_batch.h"

namespace unpaced {
namespace {

constexpr std::int32_t kLaneSteps = 3;
constexpr std::int32_t kPromptTokens = 4;  // of the first one; each has one more than the last
constexpr int kTimedRuns = 3;

}  // namespace

LaneSelfTest::LaneSelfTest(const Model& model, LlamaBridge& bridge, DeviceLoop& loop, bool as_alone)
    : model_(model),
      bridge_(bridge),
      loop_(loop),
      as_alone_(as_alone),
      n_vocab_(static_cast<std::size_t>(model.n_vocab())),
      slots_(loop.n_lanes()),
      specs_(loop.n_lanes()) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    RequestSpec& spec = specs_[i];
    spec.max_tokens = kLaneSteps;
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
  clear();
  decode_prompts();
}

LaneSelfTest::~LaneSelfTest() { loop_.unseat(); }

void LaneSelfTest::clear() { llama_memory_clear(llama_get_memory(model_.context()), true); }

void LaneSelfTest::decode(const TokenBatch& batch) {
  if (llama_decode(model_.context(), batch.get()) != 0) {
    throw std::runtime_error("self-test: llama_decode failed");
  }
}

void LaneSelfTest::decode_prompts() {
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

void LaneSelfTest::go_back(std::size_t n_rows) {
  for (Slot* slot : members(n_rows)) {
    const auto i = static_cast<std::size_t>(slot->id);
    const auto n_prompt = static_cast<llama_pos>(prompts_[i].size());
    llama_memory_seq_rm(llama_get_memory(model_.context()), slot->sequence, n_prompt, -1);
    slot->cells = prompts_[i];
    slot->cells.reserve(prompts_[i].size() + kLaneSteps);
    slot->next_token = static_cast<TokenId>((31 * i + 7) % n_vocab_);
    slot->n_decoded = 0;
    samplers_[i].reset(specs_[i].sampling, {}, nullptr, slot->cells);
  }
}

void LaneSelfTest::decode_next(std::span<Slot* const> members, Step& made) {
  TokenBatch batch(static_cast<std::int32_t>(members.size()));
  for (Slot* slot : members) {
    batch.add(slot->next_token, slot->n_cells(), slot->sequence, true);
    slot->cells.push_back(slot->next_token);
  }
  decode(batch);
  for (std::size_t i = 0; i < members.size(); ++i) {
    Slot& slot = *members[i];
    const float* row = llama_get_logits_ith(model_.context(), static_cast<std::int32_t>(i));
    made.logits.insert(made.logits.end(), row, row + n_vocab_);
    Sampler& sampler = samplers_[static_cast<std::size_t>(slot.id)];
    slot.next_token = sampler.sample(row).token;
    sampler.accept(slot.next_token);
    made.tokens.push_back(slot.next_token);
  }
}

std::vector<LaneSelfTest::Step> LaneSelfTest::decode_steps(std::size_t n_rows) {
  std::vector<Step> steps;
  const std::span<Slot* const> all = members(n_rows);
  const std::size_t n_each = as_alone_ ? 1 : n_rows;
  for (std::int32_t step = 0; step < kLaneSteps; ++step) {
    Step& made = steps.emplace_back();
    for (std::size_t i = 0; i < n_rows; i += n_each) decode_next(all.subspan(i, n_each), made);
  }
  return steps;
}

std::vector<CellPlan> LaneSelfTest::open_next(std::span<Slot* const> members) {
  std::vector<std::int32_t> sequences;
  for (const Slot* slot : members) sequences.push_back(slot->sequence);
  std::vector<CellPlan> plans = bridge_.plan(sequences, 1);
  if (plans.front().cells.empty()) throw std::runtime_error("self-test: no KV cell");
  const std::optional<Window> window = loop_.window_of(plans);
  if (!window) throw std::runtime_error("self-test: the sequences have no graph in common");
  bridge_.open(*window);
  if (!loop_.inputs().upload(bridge_, members, plans, *window)) {
    throw std::runtime_error("self-test: no KV cell");
  }
  return plans;
}

void LaneSelfTest::compare_logits(std::span<Slot* const> members,
                                  const std::vector<Step>& expected) {
  bridge_.synchronize_context();
  for (const Step& step : expected) {
    const std::vector<CellPlan> plans = open_next(members);
    const Window& window = bridge_.window();
    std::vector<float> rows(static_cast<std::size_t>(window.n_outputs) * n_vocab_);
    run_graph(loop_, bridge_, rows);
    for (std::size_t i = 0; i < members.size(); ++i) {
      Slot& slot = *members[i];
      const auto row = static_cast<std::size_t>(window.row_of(plans[i].stream, i));
      const auto its = static_cast<std::size_t>(slot.id);
      if (std::memcmp(rows.data() + row * n_vocab_, step.logits.data() + its * n_vocab_,
                      n_vocab_ * sizeof(float)) != 0) {
        throw std::runtime_error("self-test: the logits of " + std::to_string(members.size()) +
                                 " sequences at once differ from llama_decode's" +
                                 (as_alone_ ? " of each alone" : ""));
      }
      bridge_.commit(slot.sequence, slot.n_cells(), plans[i], {&slot.next_token, 1});
      slot.cells.push_back(slot.next_token);
      slot.next_token = step.tokens[its];
    }
  }
}

void LaneSelfTest::compare_tokens(std::size_t n_rows, const std::vector<Step>& expected) {
  std::size_t n_steps = 0;
  while (n_steps < expected.size()) {
    const bool is_launched = loop_.launch(members(n_rows), [this](const Slot& slot) -> Sampler& {
      return samplers_[static_cast<std::size_t>(slot.id)];
    });
    if (!is_launched) throw std::runtime_error("self-test: no KV cell");
    take_flight(loop_, [&](const DeviceLoop::Progress& news) {
      take(n_rows, news.n_steps, expected, n_steps);
    });
  }
  loop_.wait_for_stream();
  loop_.unseat();
}

void LaneSelfTest::take(std::size_t n_rows, std::int32_t n_published,
                        const std::vector<Step>& expected, std::size_t& n_steps) {
  for (; loop_.n_taken() < n_published; ++n_steps) {
    for (std::size_t i = 0; i < n_rows; ++i) {
      Slot& slot = *members_[i];
      slot.next_token = loop_.flight()[i]->take().token;
      ++slot.n_decoded;
      if (slot.next_token == expected[n_steps].tokens[i]) continue;
      throw std::runtime_error(
          "self-test: of " + std::to_string(n_rows) + " sequences at once the device drew token " +
          std::to_string(slot.next_token) + ", not " + std::to_string(expected[n_steps].tokens[i]));
    }
  }
}

void LaneSelfTest::check(std::size_t n_rows) {
  go_back(n_rows);
  const std::vector<Step> expected = decode_steps(n_rows);
  go_back(n_rows);
  compare_logits(members(n_rows), expected);
  go_back(n_rows);
  if (bridge_.n_streams() > 1 && n_rows > 2) {
    // The row of a stream between theirs is nobody's, and leaves them as they are.
    std::vector<Slot*> others(members_.begin(), members_.begin() + static_cast<int>(n_rows));
    others.erase(others.begin() + 1);
    compare_logits(others, expected);
    go_back(n_rows);
  }
  compare_tokens(n_rows, expected);
  go_back(n_rows);
}

double LaneSelfTest::step_seconds(std::size_t n_rows, std::chrono::microseconds limit) {
  bridge_.synchronize_context();
  static_cast<void>(open_next(members(n_rows)));
  loop_.run_graph();  // what a first run alone does
  TimedGraph graph(bridge_.stream(), [this] { loop_.run_graph(); });
  double least = graph.seconds(limit);
  for (int run = 1; run < kTimedRuns; ++run) least = std::min(least, graph.seconds(limit));
  return least;
}

}  // namespace unpaced
