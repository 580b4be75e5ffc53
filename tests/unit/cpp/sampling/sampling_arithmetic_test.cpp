// The parts of the sampling core against what they stand for: libstdc++'s generator, sort and
// libm's expf, and direct definitions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/arithmetic/introsort.h"
#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/sort.h"
#include "sampling/chain/dry.h"
#include "sampling/row/logit_row.h"
#include "sampling/row/token_history.h"
#include "sampling/row/token_table.h"
#include "sampling/row/vocabulary_kernels.h"

namespace unpaced {
namespace sampling_arithmetic_test {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::int32_t n, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(static_cast<std::size_t>(n));
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

struct Lists {
  explicit Lists(std::size_t n) : data(n), scratch(n) {}
  Candidates view() { return {data.data(), scratch.data(), 0, false, false}; }
  std::vector<Candidate> data, scratch;
};

TEST(random_numbers_are_those_of_the_standard_library) {
  for (const std::uint32_t seed : {0U, 1U, 42U, 0xfffffffeU}) {
    Mt19937 ours(seed);
    std::mt19937 theirs(seed);
    std::uniform_real_distribution<double> uniform_f64(0.0F, 1.0F);
    std::uniform_real_distribution<float> uniform_f32(0.0F, 1.0F);
    for (int i = 0; i < 2000; ++i) {
      CHECK_EQ(ours.next_u32(), theirs());
      CHECK_EQ(ours.next_f64(), uniform_f64(theirs));
      CHECK_EQ(ours.next_f32(), uniform_f32(theirs));
    }
  }
}

TEST(introsort_makes_the_exchanges_of_std_sort) {
  struct Item {
    float key;
    std::int32_t position;
  };
  std::mt19937 rng(1);
  const auto less = [](const Item& a, const Item& b) { return a.key < b.key; };
  for (int round = 0; round < 3000; ++round) {
    const auto n = static_cast<std::int32_t>(rng() % (round % 10 == 0 ? 3000 : 60));
    const auto n_keys = 1 + rng() % (round % 3 == 0 ? 2 : 1000);
    std::vector<Item> ours;
    for (std::int32_t i = 0; i < n; ++i) {
      ours.push_back({round % 7 == 0 ? std::nanf("") : static_cast<float>(rng() % n_keys), i});
    }
    std::vector<Item> theirs = ours;
    introsort(ours.data(), n, less);
    std::sort(theirs.begin(), theirs.end(), less);
    for (std::size_t i = 0; i < ours.size(); ++i) CHECK_EQ(ours[i].position, theirs[i].position);
  }
}

TEST(introsort_falls_back_on_adversarial_input) {
  // Median-of-three killer (Musser, 1997): quadratic without the fallback.
  constexpr std::int32_t kN = 1 << 16;
  std::vector<std::int32_t> data(kN);
  for (std::int32_t i = 0; i < kN / 2; ++i) {
    data[static_cast<std::size_t>(i)] = i % 2 == 0 ? i + 1 : kN / 2 + i + i % 2;
    data[static_cast<std::size_t>(kN / 2 + i)] = 2 * (i + 1);
  }
  std::int64_t n_compared = 0;
  introsort(data.data(), kN, [&n_compared](std::int32_t a, std::int32_t b) {
    ++n_compared;
    return a < b;
  });
  CHECK(std::ranges::is_sorted(data));
  CHECK(n_compared < 100LL * kN);
}

TEST(candidates_sort_by_logit_then_token_at_every_size) {
  std::mt19937 rng(2);
  for (const std::int32_t n : {1, 2, 17, 500, 2047, 2048, 6000}) {
    for (const bool by_token : {false, true}) {
      Lists lists(static_cast<std::size_t>(n));
      Candidates c = lists.view();
      for (std::int32_t i = 0; i < n; ++i) {
        const float logit = static_cast<float>(rng() % 50) - 25.0F;
        c.data[i] = {i, rng() % 9 == 0 ? kBanned : logit, 0.0F};
      }
      if (!by_token) std::shuffle(c.data, c.data + n, rng);
      c.size = n;
      c.by_token = by_token;
      sort_by_logit(c);
      CHECK(c.sorted);
      CHECK(std::is_sorted(c.data, c.data + n, BetterCandidate{}));
    }
  }
}

TEST(every_kernel_set_gives_libms_expf) {
  const VocabularyKernels* levels[3];
  const std::int32_t n_levels = all_vocabulary_kernels(levels, 3);
  constexpr std::uint32_t kStep = 4099;  // a prime; bench_sampling.py compares all of them
  std::vector<float> values;
  for (std::uint32_t bits = 0x80000000U; bits < 0xc2d10000U; bits += kStep) {
    values.push_back(std::bit_cast<float>(bits));
  }
  values.insert(values.end(), {kBanned, -1e30F, -104.0F, -103.98F, -103.97F, -0.0F});
  while (values.size() % kLanes != 0) values.push_back(0.0F);
  std::vector<float> exps(values.size());
  for (std::int32_t level = 0; level < n_levels; ++level) {
    levels[level]->exp_shifted(values.data(), static_cast<std::int32_t>(values.size()), 0.0F,
                               exps.data());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK_EQ(exps[i], std::exp(values[i]));
  }
}

TEST(every_kernel_set_agrees_with_plain_loops) {
  const VocabularyKernels* levels[3];
  const std::int32_t n_levels = all_vocabulary_kernels(levels, 3);
  constexpr std::int32_t kPages = 5;
  std::vector<float> logits = random_logits(kPages * kPageFloats, 3);
  logits[700] = kBanned;
  for (std::int32_t level = 0; level < n_levels; ++level) {
    const VocabularyKernels& kernels = *levels[level];
    std::vector<float> maxima(kPages * kLanes);
    CHECK(kernels.scan(logits.data(), kPages, maxima.data()));
    const float best = *std::ranges::max_element(logits);
    CHECK_EQ(kernels.max(maxima.data(), kPages * kLanes), best);
    for (const float threshold : {kBanned, -1.0F, 2.0F, best, 1e9F}) {
      const auto reaches = [threshold](float x) { return x >= threshold; };
      CHECK_EQ(kernels.count(logits.data(), kPages * kPageFloats, threshold),
               static_cast<std::int32_t>(std::ranges::count_if(logits, reaches)));
      std::uint8_t positions[kPageFloats];
      const std::int32_t n = kernels.collect(logits.data() + kPageFloats, threshold, positions);
      CHECK_EQ(n, static_cast<std::int32_t>(std::count_if(
                      logits.begin() + kPageFloats, logits.begin() + 2 * kPageFloats, reaches)));
      for (std::int32_t i = 0; i < n; ++i) {
        CHECK(reaches(logits[static_cast<std::size_t>(kPageFloats + positions[i])]));
      }
    }
    for (const float bad : {std::nanf(""), -std::nanf(""), -kBanned}) {
      for (const std::size_t position : {0U, 300U, 1279U}) {
        std::vector<float> spoilt = logits;
        spoilt[position] = bad;
        CHECK(!kernels.scan(spoilt.data(), kPages, maxima.data()));
      }
    }
  }
}

TEST(a_row_selects_the_same_tokens_as_a_full_sort) {
  for (const std::int32_t n_vocab : {1, 15, 256, 257, 1000, 20000}) {
    const std::vector<float> logits = random_logits(n_vocab, 4);
    LogitRow row(n_vocab);
    Lists lists(static_cast<std::size_t>(n_vocab));
    REQUIRE(row.bind(logits.data()));
    std::vector<float> edited = logits;
    for (TokenId token = 0; token < n_vocab; token += 97) {
      const float value = token % 2 == 0 ? kBanned : 5.0F;
      row.at(token) = value;
      edited[static_cast<std::size_t>(token)] = value;
    }
    row.refresh();
    std::vector<Candidate> sorted;
    for (TokenId token = 0; token < n_vocab; ++token) {
      sorted.push_back({token, edited[static_cast<std::size_t>(token)], 0.0F});
    }
    std::ranges::sort(sorted, BetterCandidate{});
    CHECK_EQ(row.max(), sorted[0].logit);
    for (const std::int32_t k : {1, 2, 40, 300, n_vocab}) {
      Candidates top = lists.view();
      row.select_top(std::min(k, n_vocab), top);
      CHECK_EQ(top.size, std::min(k, n_vocab));
      for (std::int32_t i = 0; i < top.size; ++i) {
        CHECK_EQ(top.data[i].token, sorted[static_cast<std::size_t>(i)].token);
      }
    }
  }
}

TEST(repetitions_are_those_of_the_definition) {
  std::mt19937 rng(5);
  for (int round = 0; round < 2000; ++round) {
    const auto n = static_cast<std::int32_t>(2 + rng() % 40);
    const auto n_words = 1 + rng() % 4;
    std::vector<TokenId> text;
    for (std::int32_t i = 0; i < n; ++i) text.push_back(static_cast<TokenId>(rng() % n_words));
    const DryWindow window{text.data() + n, n};
    const auto limit = static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(n + 1));
    std::vector<std::int32_t> repeats(static_cast<std::size_t>(n));
    dry_detail::count_repeats(window, limit, repeats.data());
    for (std::int32_t k = 1; k < n; ++k) {
      std::int32_t same = 0;
      while (k + same < n && window.at(same) == window.at(k + same)) ++same;
      CHECK_EQ(repeats[static_cast<std::size_t>(k)], std::min(same, limit));
    }
  }
}

TEST(history_keeps_the_newest_tokens_contiguous) {
  TokenHistory history(7);
  std::vector<TokenId> all;
  for (TokenId token = 0; token < 100; ++token) {
    history.push(token);
    all.push_back(token);
    for (std::int32_t n = 0; n <= 7; ++n) {
      const auto last = history.last(n);
      const auto want = std::min(all.size(), static_cast<std::size_t>(n));
      CHECK_EQ(last.size(), want);
      CHECK(std::equal(last.begin(), last.end(), all.end() - static_cast<std::ptrdiff_t>(want)));
    }
  }
}

TEST(token_table_is_a_map) {
  std::vector<std::int32_t> index(10, 7);  // any contents
  std::vector<TokenTable::Entry> entries(10);
  TokenTable table{index.data(), entries.data(), 0};
  CHECK(table.find(3) == nullptr);
  for (TokenId token = 0; token < 10; ++token) table.insert(token, 100 + token);
  table.erase(table.find(4));
  table.erase(table.find(9));
  CHECK_EQ(table.size, 8);
  for (TokenId token = 0; token < 10; ++token) {
    const bool is_in = token != 4 && token != 9;
    CHECK_EQ(table.find(token) != nullptr, is_in);
    if (is_in) CHECK_EQ(table.find(token)->value, 100 + token);
  }
}

}  // namespace
}  // namespace sampling_arithmetic_test
}  // namespace unpaced
