// How much of whose prompt a step computes, as rules and in simulations of whole loads.
#include "host/prefill_policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

namespace prefill_policy_test {
namespace {

using unpaced::PrefillLimits;
using unpaced::PrefillPolicy;
using unpaced::PromptShare;

// What each of the prompts computes, in their order by slot.
std::vector<std::int32_t> plan(const PrefillPolicy& policy, const std::vector<std::int32_t>& n_left,
                               std::int32_t n_decoding) {
  std::vector<PromptShare> prompts;
  for (std::int32_t i = 0; i < std::ssize(n_left); ++i) {
    prompts.push_back({.slot = i,
                       .id = static_cast<unpaced::RequestId>(i + 1),
                       .n_left = n_left[static_cast<std::size_t>(i)]});
  }
  policy.plan(prompts, n_decoding);
  std::vector<std::int32_t> shares(n_left.size());
  for (const PromptShare& prompt : prompts) {
    shares[static_cast<std::size_t>(prompt.slot)] = prompt.n;
  }
  return shares;
}

using Shares = std::vector<std::int32_t>;

TEST(a_prompt_alone_has_the_whole_step) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 32}, 4);
  policy.begin(0, 5000);
  CHECK(plan(policy, {5000}, 0) == Shares({512}));
  CHECK(plan(policy, {100}, 0) == Shares({100}));
  policy.observe(0, 5000, 1);  // overtaken: it has the whole step all the same
  CHECK(plan(policy, {5000}, 0) == Shares({512}));
}

TEST(beside_slots_that_decode_it_has_the_budget) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 32}, 4);
  policy.begin(0, 5000);
  CHECK(plan(policy, {5000}, 1) == Shares({32}));
  CHECK(plan(policy, {20}, 3) == Shares({20}));
}

TEST(without_a_budget_it_has_what_the_slots_leave) {
  PrefillPolicy policy({.n_chunk = 512}, 4);
  policy.begin(0, 5000);
  CHECK(plan(policy, {5000}, 3) == Shares({509}));
}

TEST(what_a_prompt_takes_is_reckoned_by_the_chunks_that_it_would_have) {
  PrefillPolicy policy({.n_chunk = 512}, 4);
  CHECK_EQ(policy.prompt_us(600, 1, 0), 0.0);
  policy.observe(0, 512, 5120);
  policy.observe(0, 1, 1000);
  policy.observe(0, 88, 1500);
  CHECK_EQ(policy.prompt_us(600, 1, 0), 5120.0 + 1500.0 - 1000.0);
  CHECK_EQ(policy.prompt_us(1024, 512, 0), 5120.0);
  // Beside slots that decode each step takes what they take, too.
  policy.observe(2, 0, 700);
  policy.observe(2, 510, 700 + 6000);
  CHECK_EQ(policy.prompt_us(1020, 510, 2), 6700.0);
  CHECK_EQ(policy.step_us(2, 0), 700.0);
  CHECK_EQ(policy.step_us(2, 2000), 6700.0);
  CHECK_EQ(policy.step_us(0, 0), 0.0);
}

// Only what is left of a prompt has been seen: that many tokens would take no more is not known.
TEST(what_has_not_been_seen_is_reckoned_at_most) {
  PrefillPolicy policy({.n_chunk = 512}, 4);
  for (int i = 0; i < 100; ++i) policy.observe(0, 1, 1000);
  CHECK_EQ(policy.prompt_us(101, 1, 0), 100'000.0);
}

TEST(who_has_least_left_goes_first_and_what_fits_goes_together) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 64}, 4);
  policy.begin(0, 5000);
  policy.begin(1, 40);
  policy.begin(2, 10);
  CHECK(plan(policy, {5000, 40, 10}, 1) == Shares({14, 40, 10}));
  CHECK(plan(policy, {5000, 60, 50}, 1) == Shares({0, 14, 50}));
  CHECK(plan(policy, {100, 200, 300}, 0) == Shares({100, 200, 212}));
}

TEST(one_that_was_overtaken_has_half_the_step) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 64}, 4);
  policy.begin(0, 1000);
  policy.observe(1, 999, 1);
  policy.begin(1, 500);
  CHECK(plan(policy, {1000, 500}, 1) == Shares({0, 64}));
  policy.observe(1, 1, 1);
  CHECK(plan(policy, {1000, 500}, 1) == Shares({32, 32}));
  CHECK(plan(policy, {20, 500}, 1) == Shares({20, 44}));
}

TEST(a_text_that_resumes_counts_as_overtaken) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 64}, 4);
  policy.begin(0, 500);
  policy.resume(1);
  CHECK(plan(policy, {500, 3000}, 1) == Shares({32, 32}));
}

TEST(a_target_is_kept_by_what_steps_take) {
  PrefillPolicy policy({.n_chunk = 512, .max_itl_us = 50'000}, 4);
  policy.begin(0, 5000);
  CHECK(plan(policy, {5000}, 2) == Shares({8}));  // nothing is known yet
  policy.observe(2, 0, 10'000);
  policy.observe(2, 8, 18'000);
  CHECK(plan(policy, {5000}, 2) == Shares({40}));
  // Each further step tells more.
  for (int i = 0; i < 40; ++i) {
    const std::int32_t n = plan(policy, {5000}, 2)[0];
    policy.observe(2, n, 10'000 + 2000 * n);
  }
  CHECK(plan(policy, {5000}, 2) == Shares({20}));
}

TEST(target_and_budget_hold_together) {
  PrefillPolicy policy({.n_chunk = 512, .n_beside = 16, .max_itl_us = 50'000}, 4);
  policy.begin(0, 5000);
  policy.observe(2, 0, 10'000);
  policy.observe(2, 8, 18'000);
  CHECK(plan(policy, {5000}, 2) == Shares({16}));
}

TEST(a_target_that_cannot_be_kept_leaves_a_prompt_its_part) {
  PrefillPolicy policy({.n_chunk = 512, .max_itl_us = 1000}, 4);
  policy.begin(0, 5000);
  policy.observe(2, 0, 40'000);
  policy.observe(2, 8, 48'000);
  CHECK(plan(policy, {5000}, 2) == Shares({10}));  // a quarter of 40 ms
  policy.observe(2, 8, 840'000);
  for (int i = 0; i < 40; ++i) policy.observe(2, 8, 40'000 + 8 * 100'000);
  CHECK(plan(policy, {5000}, 2) == Shares({1}));
}

// --- loads -----------------------------------------------------------------------------------

struct Sequence {
  unpaced::RequestId id = 0;
  bool is_active = false;
  std::int32_t n_prompt = 0;
  std::int32_t n_left = 0;    // of the prompt
  std::int32_t n_tokens = 0;  // to decode
  std::int64_t n_others = 0;  // tokens of others' prompts since it began
  std::int64_t n_bound = 0;   // as many at most
};

struct Traffic {
  std::int32_t n_sequences = 0;
  std::int32_t pause = 0;       // steps before a slot's next sequence, about
  std::int32_t n_per_long = 0;  // sequences, of which one has a long prompt
  std::int32_t n_tokens = 0;    // of a text, at most
};

// Runs sequences over slots to their ends; what must hold is checked in every step.
class Load {
 public:
  Load(std::uint32_t seed, std::int32_t n_slots, const PrefillLimits& limits,
       const Traffic& traffic)
      : random_(seed),
        limits_(limits),
        traffic_(traffic),
        policy_(limits, n_slots),
        slots_(static_cast<std::size_t>(n_slots)) {}

  void run() {
    const std::int32_t n_sequences = traffic_.n_sequences;
    std::int64_t n_steps = 0;
    while (n_started_ < n_sequences || std::ranges::any_of(slots_, &Sequence::is_active)) {
      REQUIRE(++n_steps < 2'000'000);  // someone waits for ever
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].is_active && n_started_ < n_sequences && draw(0, traffic_.pause) == 0) {
          start(i);
        }
      }
      step();
    }
  }

 private:
  std::int32_t draw(std::int32_t from, std::int32_t to) {
    return std::uniform_int_distribution<std::int32_t>(from, to)(random_);
  }

  void start(std::size_t i) {
    Sequence& sequence = slots_[i];
    sequence = {.id = static_cast<unpaced::RequestId>(++n_started_), .is_active = true};
    sequence.n_prompt = sequence.n_left =
        draw(1, traffic_.n_per_long) == 1 ? draw(1, 3000) : draw(1, 60);
    sequence.n_tokens = draw(1, traffic_.n_tokens);
    policy_.begin(static_cast<std::int32_t>(i), sequence.n_left);
    // As much as it is long; then each that was overtaken before it, at most one a slot, has half
    // of a step until it is done, and so has this one.
    std::int64_t n_halves = sequence.n_prompt;
    for (const Sequence& other : slots_) {
      if (other.id != sequence.id) n_halves += std::max(other.n_left, sequence.n_prompt);
    }
    sequence.n_bound = sequence.n_prompt + 2 * n_halves + limits_.n_chunk;
  }

  void step() {
    std::vector<PromptShare> prompts;
    std::int32_t n_decoding = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Sequence& s = slots_[i];
      if (!s.is_active) continue;
      if (s.n_left == 0) ++n_decoding;
      if (s.n_left > 0) {
        prompts.push_back({.slot = static_cast<std::int32_t>(i), .id = s.id, .n_left = s.n_left});
      }
    }
    policy_.plan(prompts, n_decoding);
    std::int32_t n_prompt = 0;
    for (const PromptShare& prompt : prompts) {
      CHECK(prompt.n >= 0 && prompt.n <= prompt.n_left);
      n_prompt += prompt.n;
    }
    check(prompts, n_prompt, n_decoding);
    // Slots that decode do so in every step.
    for (Sequence& s : slots_) {
      if (s.is_active && s.n_left == 0 && --s.n_tokens == 0) s.is_active = false;
    }
    for (const PromptShare& prompt : prompts) {
      Sequence& s = slots_[static_cast<std::size_t>(prompt.slot)];
      s.n_left -= prompt.n;
      s.n_others += n_prompt - prompt.n;
      CHECK(s.n_others <= s.n_bound);
    }
    const std::int64_t us = 500 + 100 * n_decoding + draw(50, 150) * n_prompt;
    policy_.observe(n_decoding, n_prompt, us);
  }

  void check(const std::vector<PromptShare>& prompts, std::int32_t n_prompt,
             std::int32_t n_decoding) const {
    if (prompts.empty()) return;
    CHECK(n_prompt > 0);  // prompts go on in every step
    CHECK(n_prompt + n_decoding <= limits_.n_chunk);
    if (n_decoding > 0 && limits_.n_beside > 0) CHECK(n_prompt <= limits_.n_beside);
    std::int64_t n_left = 0;
    for (const PromptShare& prompt : prompts) n_left += prompt.n_left;
    // Nothing that fits is left for later.
    const std::int32_t n_room = n_decoding > 0 ? policy_.n_beside(n_decoding) : limits_.n_chunk;
    CHECK_EQ(n_prompt,
             std::min<std::int64_t>(n_left, std::min(n_room, limits_.n_chunk - n_decoding)));
  }

  std::mt19937 random_;
  const PrefillLimits limits_;
  const Traffic traffic_;
  PrefillPolicy policy_;
  std::vector<Sequence> slots_;
  std::int32_t n_started_ = 0;
};

// Whose chunk is computed alone, until all prompts are computed: by slot, in order.
std::vector<std::int32_t> turns_alone(std::vector<PromptShare> prompts, std::int32_t n_chunk) {
  PrefillPolicy policy({.n_chunk = n_chunk}, 4);
  for (const PromptShare& prompt : prompts) policy.begin(prompt.slot, prompt.n_left);
  std::vector<std::int32_t> turns;
  while (!prompts.empty()) {
    const std::int32_t slot = policy.next_alone(prompts).slot;
    const auto at = std::ranges::find(prompts, slot, &PromptShare::slot);
    const std::int32_t n = std::min(at->n_left, n_chunk);
    turns.push_back(slot);
    policy.observe(0, n, 1);
    at->n_left -= n;
    if (at->n_left == 0) prompts.erase(at);
  }
  return turns;
}

TEST(alone_the_shortest_goes_first) {
  using Turns = std::vector<std::int32_t>;
  CHECK(turns_alone({{.slot = 0, .id = 1, .n_left = 250}, {.slot = 1, .id = 2, .n_left = 50}},
                    100) == Turns({1, 0, 0, 0}));
  // In the order of what is left; who is overtaken is the one that is next anyway.
  CHECK(turns_alone({{.slot = 0, .id = 1, .n_left = 200},
                     {.slot = 1, .id = 2, .n_left = 150},
                     {.slot = 2, .id = 3, .n_left = 100}},
                    50) == Turns({2, 2, 1, 1, 1, 0, 0, 0, 0}));
}

TEST(alone_every_prompt_ends_among_short_ones_without_end) {
  PrefillPolicy policy({.n_chunk = 64}, 2);
  PromptShare long_one{.slot = 0, .id = 1, .n_left = 640};
  policy.begin(0, long_one.n_left);
  std::int32_t n_turns = 0;
  for (unpaced::RequestId id = 2; long_one.n_left > 0; ++id, ++n_turns) {
    const PromptShare short_one{.slot = 1, .id = id, .n_left = 10};
    policy.begin(1, 10);
    const std::vector<PromptShare> prompts = {long_one, short_one};
    const bool is_long = policy.next_alone(prompts).slot == 0;
    policy.observe(0, is_long ? 64 : 10, 1);
    if (is_long) long_one.n_left -= 64;
  }
  // 64 short ones until it is overtaken, then every second turn.
  CHECK(n_turns <= 64 + 2 * 10);
}

TEST(every_prompt_of_every_load_ends_within_its_bound_and_decoding_never_waits) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const std::int32_t n_slots = 1 + static_cast<std::int32_t>(seed % 9);
    PrefillLimits limits{.n_chunk = n_slots + 1 + static_cast<std::int32_t>(seed % 512)};
    if (seed % 3 == 1) limits.n_beside = 1 + static_cast<std::int32_t>(seed % 64);
    if (seed % 3 == 2) limits.max_itl_us = 500 + 100 * static_cast<std::int32_t>(seed % 100);
    const Traffic traffic{.n_sequences = 60, .pause = 3, .n_per_long = 5, .n_tokens = 40};
    Load(seed, n_slots, limits, traffic).run();
  }
}

// Short prompts alone would fill every step.
TEST(a_long_prompt_ends_within_its_bound_among_short_ones_without_end) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const PrefillLimits limits{.n_chunk = 512,
                               .n_beside = 4 + static_cast<std::int32_t>(seed % 29)};
    const Traffic traffic{.n_sequences = 3000, .n_per_long = 200, .n_tokens = 2};
    Load(seed, 4 + static_cast<std::int32_t>(seed % 5), limits, traffic).run();
  }
}

}  // namespace
}  // namespace prefill_policy_test
