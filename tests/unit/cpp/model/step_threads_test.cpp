// Who computes a step, the decode thread alone or ggml's worker with it, changes no bit of it.
#include <vector>

#include "check.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace step_threads_test {
namespace {

using unpaced::EngineConfig;
using unpaced::test::drawn_tokens;
using unpaced::test::DrawnToken;
using unpaced::test::ModelEngine;

std::vector<DrawnToken> answer(ModelEngine& engine, std::int32_t n_prompt, std::int32_t n) {
  auto spec = engine.greedy(engine.prompt(n_prompt), n);
  spec->n_probs = 5;
  const auto id = engine.front.submit(std::move(spec));
  if (!engine.front.run_until_finished(id)) return {};
  return drawn_tokens(engine.front.events(id));
}

void check_same(const std::vector<DrawnToken>& one, const std::vector<DrawnToken>& other) {
  REQUIRE(!one.empty());
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].drawn.token == other[i].drawn.token);
    CHECK(one[i].drawn.logprob == other[i].drawn.logprob);
  }
}

EngineConfig config_of(bool short_steps_alone) {
  EngineConfig config;
  config.n_ctx = 1024;
  config.n_threads = config.n_threads_batch = 2;
  config.short_steps_alone = short_steps_alone;
  return config;
}

TEST(bits_do_not_follow_the_threads_of_short_steps) {
  ModelEngine together(config_of(false));
  ModelEngine alone(config_of(true));
  // Short and long prompts, few cells before a lone token and many.
  for (const std::int32_t n_prompt : {3, 40, 200, 250, 300, 520, 700, 20}) {
    check_same(answer(together, n_prompt, 24), answer(alone, n_prompt, 24));
  }
}

}  // namespace
}  // namespace step_threads_test
