// The Sampler as the decode thread uses it: no allocation once it is made, the same tokens however
// the row lies in memory, the row untouched. Equality with llama.cpp is
// test_sampling_reference.py's.
#include "sampling/sampler.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "sampling/logprobs.h"

namespace {

std::int64_t n_allocations = 0;  // one thread samples; the watchdog's allocations come before

void* count_and_allocate(std::size_t size) {
  ++n_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}

}  // namespace

void* operator new(std::size_t size) { return count_and_allocate(size); }
void* operator new[](std::size_t size) { return count_and_allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace unpaced {
namespace {

constexpr std::int32_t kVocab = 3001;  // no multiple of a page
constexpr std::int32_t kContext = 100;

std::vector<float> random_logits(std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

// One of everything: every sampler on, in the default order, reversed, and the two mirostats.
std::vector<SamplingParams> all_kinds_of_params() {
  std::vector<SamplingParams> all(8);
  for (SamplingParams& p : all) {
    p.seed = 9;
    p.repeat_penalty = 1.2F;
    p.frequency_penalty = 0.1F;
    p.dry_multiplier = 0.8F;
    p.dry_allowed_length = 1;
  }
  all[1].top_k = 0;
  all[2].top_k = 0;
  all[2].top_p = 0.999F;
  all[2].min_p = 0.0F;
  all[3].typical_p = 0.7F;
  all[3].xtc_probability = 0.9F;
  all[3].top_n_sigma = 1.5F;
  all[3].dynatemp_range = 0.4F;
  all[4] = all[3];
  for (std::int32_t i = 0; i < all[4].n_chain / 2; ++i) {
    std::swap(all[4].chain[i], all[4].chain[all[4].n_chain - 1 - i]);
  }
  all[5].mirostat = 1;
  all[6].mirostat = 2;
  all[7].n_chain = 0;
  return all;
}

const std::vector<LogitBias> kBiases = {
    {5, -std::numeric_limits<float>::infinity()}, {2999, 3.0F}, {2999, 0.5F}};

DryBreakers some_breakers() { return {{{3, 0, 0}, {8, 0, 2}, {8, 2, 3}}, {4, 5, 6}}; }

TEST(nothing_is_allocated_after_the_constructors) {
  const auto params = all_kinds_of_params();
  const DryBreakers breakers = some_breakers();
  const std::vector<TokenId> prompt = {1, 2, 3, 1, 2, 3, 8, 4, 5, 1, 2};
  const std::vector<float> logits = random_logits(1);
  Sampler sampler(kVocab, kContext);
  TopLogprobs logprobs(kVocab);
  const std::int64_t before = n_allocations;
  for (const SamplingParams& p : params) {
    sampler.reset(p, kBiases, &breakers, prompt);
    for (int i = 0; i < 3 * kContext; ++i) {
      const SampleResult result = sampler.sample(logits.data());
      CHECK(result.status == SampleStatus::kOk);
      CHECK(!sampler.candidates().empty());
      CHECK(!sampler.candidates(3).empty());
      sampler.accept(result.token);
    }
    CHECK_EQ(logprobs.compute(logits.data(), 20).size(), std::size_t{20});
  }
  CHECK_EQ(n_allocations, before);
}

TEST(tokens_do_not_depend_on_the_rows_alignment) {
  const std::vector<float> logits = random_logits(2);
  Sampler sampler(kVocab, kContext);
  for (const SamplingParams& params : all_kinds_of_params()) {
    std::vector<TokenId> first;
    for (std::size_t offset = 0; offset < 20; ++offset) {
      std::vector<float> memory(kVocab + offset, std::nanf(""));  // only the row may be read
      std::copy(logits.begin(), logits.end(), memory.begin() + static_cast<std::ptrdiff_t>(offset));
      sampler.reset(params, kBiases, nullptr, {});
      std::vector<TokenId> tokens;
      for (int i = 0; i < 5; ++i) tokens.push_back(sampler.sample(memory.data() + offset).token);
      if (offset == 0) first = tokens;
      CHECK(tokens == first);
      CHECK(tokens[0] >= 0);
    }
  }
}

TEST(the_row_is_not_modified) {
  const std::vector<float> logits = random_logits(3);
  const std::vector<float> before = logits;  // NOLINT(performance-unnecessary-copy-initialization)
  Sampler sampler(kVocab, kContext);
  for (const SamplingParams& params : all_kinds_of_params()) {
    sampler.reset(params, kBiases, nullptr, std::vector<TokenId>{1, 2, 1, 2});
    sampler.accept(sampler.sample(logits.data()).token);
    sampler.sample(logits.data());
    CHECK(logits == before);
  }
}

TEST(a_moved_sampler_goes_on) {
  const std::vector<float> logits = random_logits(4);
  SamplingParams params = all_kinds_of_params()[0];
  Sampler straight(kVocab, kContext);
  Sampler origin(kVocab, kContext);
  straight.reset(params, kBiases, nullptr, {});
  origin.reset(params, kBiases, nullptr, {});
  const auto step = [&logits](Sampler& sampler) {
    const TokenId token = sampler.sample(logits.data()).token;
    sampler.accept(token);
    return token;
  };
  for (int i = 0; i < 10; ++i) CHECK_EQ(step(straight), step(origin));
  Sampler moved(std::move(origin));
  for (int i = 0; i < 10; ++i) CHECK_EQ(step(straight), step(moved));
}

TEST(a_new_generation_does_not_see_the_one_before) {
  const std::vector<float> logits = random_logits(5);
  const DryBreakers breakers = some_breakers();
  for (const SamplingParams& params : all_kinds_of_params()) {
    Sampler used(kVocab, kContext);
    Sampler fresh(kVocab, kContext);
    used.reset(all_kinds_of_params()[3], kBiases, &breakers, std::vector<TokenId>(200, 2999));
    for (int i = 0; i < 20; ++i) used.accept(used.sample(logits.data()).token);
    used.reset(params, {}, nullptr, {});
    fresh.reset(params, {}, nullptr, {});
    for (int i = 0; i < 50; ++i) {
      const TokenId token = fresh.sample(logits.data()).token;
      CHECK_EQ(used.sample(logits.data()).token, token);
      used.accept(token);
      fresh.accept(token);
    }
  }
}

TEST(a_mask_is_a_row_with_the_others_banned) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::mt19937 rng(5);
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SamplingParams params;
    params.seed = seed;
    if (seed % 4 == 1) params.top_k = 0;
    if (seed % 4 == 2) params.mirostat = 2;
    if (seed % 4 == 3) params.n_chain = 0;
    Sampler masked(kVocab, kContext);
    Sampler banned(kVocab, kContext);
    masked.reset(params, {}, nullptr, {});
    banned.reset(params, {}, nullptr, {});
    for (int draw = 0; draw < 5; ++draw) {
      std::vector<float> logits = random_logits(100 * seed + static_cast<std::uint32_t>(draw));
      std::vector<std::uint32_t> words((kVocab + 31) / 32, 0);
      for (std::int32_t token = 0; token < kVocab; ++token) {
        if (rng() % (seed < 20 ? 2 : 200) == 0) {
          words[static_cast<std::size_t>(token / 32)] |= 1U << (token % 32);
        }
      }
      const SampleResult a = masked.sample(logits.data(), words);
      for (std::int32_t token = 0; token < kVocab; ++token) {
        const bool may = (words[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) != 0;
        if (!may) logits[static_cast<std::size_t>(token)] = -kInf;
      }
      const SampleResult b = banned.sample(logits.data());
      CHECK(a.status == b.status);
      CHECK_EQ(a.token, b.token);
      const auto token = static_cast<std::uint32_t>(a.token);
      CHECK((words[token / 32] >> (token % 32) & 1U) != 0);
    }
  }
}

TEST(an_empty_mask_leaves_no_token) {
  Sampler sampler(kVocab, kContext);
  sampler.reset(SamplingParams{}, {}, nullptr, {});
  const std::vector<std::uint32_t> words((kVocab + 31) / 32, 0);
  CHECK(sampler.sample(random_logits(1).data(), words).status == SampleStatus::kNonFinite);
}

}  // namespace
}  // namespace unpaced
