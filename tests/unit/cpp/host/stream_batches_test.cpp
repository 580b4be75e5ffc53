// Batches of slots that have a KV stream each: llama.cpp computes those together that come in the
// order of their streams. Its llama_decode is looked at from outside.
#include <algorithm>
#include <mutex>
#include <vector>

#include "check.h"
#include "model_engine.h"

namespace {

using unpaced::EngineConfig;
using unpaced::RequestId;
using unpaced::test::ModelEngine;

using Sequences = std::vector<llama_seq_id>;  // of a batch's tokens

std::mutex mutex;
std::vector<Sequences> batches;

std::size_t n_different(Sequences sequences) {
  std::ranges::sort(sequences);
  sequences.erase(std::ranges::unique(sequences).begin(), sequences.end());
  return sequences.size();
}

// Prompts of which several are computed at once, if the engine gets them at once.
void answer_eight(ModelEngine& engine, std::int32_t round) {
  std::vector<RequestId> ids;
  // Who is done first is first, and may have any slot.
  for (const std::int32_t n : {30, 70, 10, 60, 20, 50, 40, 400}) {
    ids.push_back(engine.front.submit(engine.greedy(engine.prompt(n, 1000 * round + n), 20)));
  }
  for (const RequestId id : ids) REQUIRE(engine.front.run_until_finished(id));
}

// In one batch, with more than a token each.
std::size_t n_prompts_at_once() {
  std::size_t n = 0;
  const std::lock_guard lock(mutex);
  for (const Sequences& batch : batches) {
    if (batch.size() > n_different(batch)) n = std::max(n, n_different(batch));
  }
  return n;
}

TEST(batches_are_in_the_order_of_the_streams) {
  EngineConfig config;
  config.n_slots = 8;
  config.n_ctx = config.n_slots * 512;
  config.kv_unified = false;
  ModelEngine engine(config);
  // A busy machine may keep this thread from asking for the next one in time.
  for (int round = 0; round < 50 && n_prompts_at_once() < 3; ++round) answer_eight(engine, round);
  CHECK(n_prompts_at_once() > 2);
  const std::lock_guard lock(mutex);
  for (const Sequences& batch : batches) CHECK(std::ranges::is_sorted(batch));
}

}  // namespace

extern "C" {

int32_t __real_llama_decode(llama_context* context, llama_batch batch);

// Instead of llama_decode: --wrap has it so.
int32_t __wrap_llama_decode(llama_context* context, llama_batch batch) {
  {
    const std::lock_guard lock(mutex);
    Sequences& sequences = batches.emplace_back();
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
      if (batch.n_seq_id != nullptr) sequences.push_back(batch.seq_id[i][0]);
    }
  }
  return __real_llama_decode(context, batch);
}

}  // extern "C"
