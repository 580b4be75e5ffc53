// Which sequences have which cells in common, beside a model that names every cell.
#include "cells/prefix_index.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"

namespace prefix_index_test {
namespace {

using unpaced::PrefixIndex;
using unpaced::TokenId;

constexpr std::int32_t kSequences = 12;

// Every sequence as the numbers of its cells, each with its token: what llama.cpp has.
class CellModel {
 public:
  void share(std::size_t from, std::size_t to, std::size_t n) {
    for (std::size_t i = held[to].size(); i < n; ++i) held[to].push_back(held[from][i]);
  }
  void append(std::size_t sequence, TokenId token) {
    held[sequence].push_back(static_cast<std::int32_t>(token_of.size()));
    token_of.push_back(token);
  }
  void cut(std::size_t sequence, std::size_t n) { held[sequence].resize(n); }

  [[nodiscard]] std::int32_t n_common(std::size_t a, std::size_t b) const {
    const auto end = std::ranges::mismatch(held[a], held[b]).in1;
    return static_cast<std::int32_t>(end - held[a].begin());
  }
  [[nodiscard]] std::int32_t n_distinct() const {
    std::set<std::int32_t> cells;
    for (const auto& sequence : held) cells.insert(sequence.begin(), sequence.end());
    return static_cast<std::int32_t>(cells.size());
  }
  [[nodiscard]] std::vector<TokenId> tokens(std::size_t sequence) const {
    std::vector<TokenId> tokens;
    for (const std::int32_t cell : held[sequence]) {
      tokens.push_back(token_of[static_cast<std::size_t>(cell)]);
    }
    return tokens;
  }

  std::vector<std::vector<std::int32_t>> held{kSequences};
  std::vector<TokenId> token_of;
};

void compare(const CellModel& model, const PrefixIndex& index, std::mt19937& random) {
  std::vector<PrefixIndex::Held> all;
  std::vector<std::vector<TokenId>> tokens;
  bool is_shared = false;
  for (std::int32_t a = 0; a < kSequences; ++a) {
    std::int32_t n_shared = 0;
    for (std::int32_t b = 0; b < kSequences; ++b) {
      if (a == b) continue;
      const auto n = model.n_common(static_cast<std::size_t>(a), static_cast<std::size_t>(b));
      CHECK_EQ(index.n_common(a, b), n);
      n_shared = std::max(n_shared, n);
    }
    CHECK_EQ(index.n_shared(a), n_shared);
    is_shared |= n_shared > 0;
    tokens.push_back(model.tokens(static_cast<std::size_t>(a)));
    all.push_back({.sequence = a, .n = static_cast<std::int32_t>(tokens.back().size())});
  }
  CHECK_EQ(index.is_shared(), is_shared);
  std::ranges::shuffle(all, random);
  CHECK_EQ(index.n_distinct(all), model.n_distinct());
  std::vector<TokenId> prompt = tokens[random() % kSequences];
  prompt.resize(random() % 40, 1);
  std::vector<PrefixIndex::Holder> holders;
  for (const PrefixIndex::Held& held : all) {
    holders.push_back(
        {.sequence = held.sequence, .tokens = tokens[static_cast<std::size_t>(held.sequence)]});
  }
  index.match(prompt, holders);
  for (const PrefixIndex::Holder& holder : holders) {
    const auto n = std::ranges::mismatch(prompt, holder.tokens).in1 - prompt.begin();
    CHECK_EQ(holder.n_match, n);
  }
}

TEST(random_traces_leave_the_index_as_the_cells_are) {
  std::mt19937 random(7);
  std::int64_t n_sharing = 0;
  for (std::int32_t trace = 0; trace < 200; ++trace) {
    CellModel model;
    PrefixIndex index(kSequences);
    for (std::int32_t i = 0; i < 100; ++i) {
      const std::size_t a = random() % kSequences;
      const std::size_t b = random() % kSequences;
      const std::size_t n_a = model.held[a].size();
      switch (random() % 4) {
        case 0:  // few tokens, so that sequences are often equal in cells of their own
          for (std::size_t n = random() % 8; n > 0; --n) {
            model.append(a, static_cast<TokenId>(random() % 2));
          }
          break;
        case 1:
          model.cut(a, random() % (n_a + 1));
          index.cut(static_cast<std::int32_t>(a), static_cast<std::int32_t>(model.held[a].size()));
          break;
        default:  // a request takes over all that it can, or goes on where a part was taken over
          if (a == b) break;
          if (model.n_common(a, b) < std::ssize(model.held[b]) || random() % 2 == 0) {
            model.cut(b, 0);
            index.cut(static_cast<std::int32_t>(b), 0);
          }
          const std::size_t n_b = model.held[b].size();
          const std::size_t n = n_b + random() % (n_a - n_b + 1);
          model.share(a, b, n);
          index.share(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b),
                      static_cast<std::int32_t>(n));
          break;
      }
      compare(model, index, random);
      n_sharing += index.is_shared() ? 1 : 0;
    }
    // Nothing is left of what is gone.
    for (std::int32_t a = 0; a < kSequences; ++a) {
      model.cut(static_cast<std::size_t>(a), 0);
      index.cut(a, 0);
    }
    compare(model, index, random);
    CHECK(!index.is_shared());
  }
  CHECK(n_sharing > 1000);
}

TEST(a_prompt_that_is_still_computed_counts_with_all_its_tokens) {
  PrefixIndex index(3);
  index.share(0, 1, 5);
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<TokenId> other = {1, 2, 3, 9, 9, 9, 9};
  std::vector<PrefixIndex::Holder> holders = {{.sequence = 0, .tokens = prompt},
                                              {.sequence = 1, .tokens = prompt},
                                              {.sequence = -1, .tokens = prompt},
                                              {.sequence = -1, .tokens = other}};
  index.match(std::span(prompt).first(7), holders);
  CHECK_EQ(holders[0].n_match, 7);
  CHECK_EQ(holders[1].n_match, 7);
  CHECK_EQ(holders[2].n_match, 7);
  CHECK_EQ(holders[3].n_match, 3);
}

TEST(its_version_tells_of_every_change) {
  PrefixIndex index(3);
  const auto before = index.version();
  index.cut(0, 0);
  CHECK_EQ(index.version(), before);
  index.share(0, 1, 5);
  const auto shared = index.version();
  CHECK(shared != before);
  index.cut(0, 7);
  CHECK_EQ(index.version(), shared);
  index.cut(1, 3);
  CHECK(index.version() != shared);
  CHECK_EQ(index.n_common(0, 1), 3);
  index.clear();
  CHECK(!index.is_shared());
}

}  // namespace
}  // namespace prefix_index_test
