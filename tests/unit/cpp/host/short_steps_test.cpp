// The steps that a decode thread computes without ggml's workers are short, behind a prompt, and
// none whose bits would follow the number of threads.
#include "host/short_steps.h"

#include "check.h"

namespace short_steps_test {
namespace {

using unpaced::ShortSteps;

constexpr std::uint64_t kSmall = 3'000'000;

TEST(prompts_by_their_work) {
  ShortSteps steps(kSmall, 0);
  CHECK(steps.next({.n_tokens = 13, .has_prompt = true}));
  CHECK(steps.next({.n_tokens = 64, .has_prompt = true, .n_cells = 900}));
  CHECK(!steps.next({.n_tokens = 400, .has_prompt = true}));
}

TEST(steps_behind_a_prompt) {
  ShortSteps steps(kSmall, 0);
  CHECK(steps.next({.n_tokens = 13, .has_prompt = true}));
  int n_short = 0;
  while (n_short < 1000 && steps.next({.n_tokens = 4})) ++n_short;
  CHECK(n_short > 0 && n_short < 100);
  CHECK(!steps.next({.n_tokens = 4}));
  CHECK(steps.next({.n_tokens = 3, .has_prompt = true}));
  CHECK(steps.next({.n_tokens = 4}));
}

TEST(a_long_prompt_has_no_short_steps_behind_it) {
  ShortSteps steps(kSmall, 0);
  CHECK(steps.next({.n_tokens = 5, .has_prompt = true}));
  CHECK(!steps.next({.n_tokens = 512, .has_prompt = true}));
  CHECK(!steps.next({.n_tokens = 4, .n_cells = 512}));
}

TEST(a_lone_token_with_many_cells_is_everybodys) {
  ShortSteps steps(kSmall, 0);
  CHECK(steps.next({.n_tokens = 1, .has_prompt = true, .n_cells = 255}));
  CHECK(!steps.next({.n_tokens = 1, .has_prompt = true, .n_cells = 256}));
  CHECK(steps.next({.n_tokens = 2, .has_prompt = true, .n_cells = 256}));
}

// 31 streams that share their cells were slowed down to half by one that came and went.
TEST(cells_that_all_tokens_read_are_work) {
  ShortSteps steps(kSmall, 4 * 256);
  CHECK(steps.next({.n_tokens = 13, .has_prompt = true, .n_read = 13}));
  CHECK(steps.next({.n_tokens = 32, .n_cells = 50, .n_read = 1000}));
  CHECK(!steps.next({.n_tokens = 32, .n_cells = 300, .n_read = 9600}));
  CHECK(steps.next({.n_tokens = 4, .n_cells = 2400, .n_read = 9600}));
  CHECK(!steps.next({.n_tokens = 45, .has_prompt = true, .n_cells = 300, .n_read = 9600}));
  CHECK(!steps.next({.n_tokens = 4, .n_cells = 2400, .n_read = 9600}));
}

TEST(larger_models_have_none) {
  ShortSteps steps(200'000'000, 0);
  CHECK(!steps.next({.n_tokens = 1, .has_prompt = true}));
  CHECK(!ShortSteps(0, 0).next({.n_tokens = 1, .has_prompt = true}));
}

}  // namespace
}  // namespace short_steps_test
