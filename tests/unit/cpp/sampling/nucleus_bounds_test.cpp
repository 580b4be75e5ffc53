// What top-p's float32 sums are said to be at most and at least (sampling/nucleus_bounds.h) against
// the sums themselves.
#include "sampling/arithmetic/nucleus_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "check.h"

namespace unpaced {
namespace nucleus_bounds_test {
namespace {

// Exponentials of a row: the greatest is 1.
std::vector<float> exponentials(std::mt19937& random, std::size_t n, float deviation, bool coarse) {
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> row(n);
  for (float& x : row) {
    x = normal(random);
    if (coarse) x = std::round(x * 4.0F) / 4.0F;
  }
  const float best = *std::max_element(row.begin(), row.end());
  for (float& x : row) x = std::exp(x - best);
  return row;
}

struct Doubts {
  std::size_t n_sure = 0;
  std::size_t n_unsure = 0;
};

// At every place of the descending order, for p at and beside the sum there.
void check_row(const std::vector<float>& row, Doubts& doubts) {
  float sum = 0.0F;
  double all = 0.0;
  double slack = 0.0;
  for (const float e : row) {
    sum += e;
    all += static_cast<double>(e);
    slack += NucleusBounds::slack_of(e);
  }
  const NucleusBounds bounds(all, slack);
  std::vector<float> sorted = row;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  float running = 0.0F;
  double mass = 0.0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    running += sorted[i] / sum;
    mass += static_cast<double>(sorted[i]);
    const auto n = static_cast<std::int32_t>(i + 1);
    CHECK(!bounds.is_below(mass, n, running));
    CHECK(!bounds.is_below(mass, n, std::nextafter(running, 0.0F)));
    CHECK(!bounds.reaches(mass, n, std::nextafter(running, 2.0F)));
    for (const float p : {0.1F, 0.5F, 0.95F}) {
      const bool is_below = bounds.is_below(mass, n, p);
      const bool reaches = bounds.reaches(mass, n, p);
      if (is_below) CHECK(running < p);
      if (reaches) CHECK(running >= p);
      ++(is_below || reaches ? doubts.n_sure : doubts.n_unsure);
    }
  }
}

TEST(float_sums_lie_within_the_bounds) {
  std::mt19937 random(5);
  Doubts doubts;
  for (const std::size_t n : {1U, 2U, 40U, 1000U, 30000U, 128256U}) {
    for (const float deviation : {0.0F, 0.01F, 1.0F, 3.0F, 12.0F}) {
      for (const bool coarse : {false, true}) {
        check_row(exponentials(random, n, deviation, coarse), doubts);
      }
    }
  }
  CHECK(doubts.n_unsure > 0);
  CHECK(doubts.n_sure > 50 * doubts.n_unsure);
}

// Sums that round down, or up, nearly every time: as far from the exact ones as a sum gets.
TEST(sums_that_always_round_one_way_lie_within_the_bounds) {
  Doubts doubts;
  for (const float rest : {0x1.8p-24F, 0x1.7ffffep-24F, 0x1p-24F, 0x0.8p-24F, 0x1.000002p-25F}) {
    std::vector<float> row(100000, rest);
    row[0] = 1.0F;
    check_row(row, doubts);
  }
  CHECK(doubts.n_sure > 0);
}

TEST(what_a_peaked_row_leaves_open_is_little) {
  std::vector<float> row(128256, 1e-9F);
  row[7] = 1.0F;
  row[900] = 0.5F;
  double all = 0.0;
  double slack = 0.0;
  for (const float e : row) {
    all += static_cast<double>(e);
    slack += NucleusBounds::slack_of(e);
  }
  const NucleusBounds bounds(all, slack);
  CHECK(bounds.is_below(1.0, 1, 0.6667F));
  CHECK(bounds.reaches(1.0, 1, 0.6664F));
  CHECK(bounds.reaches(1.5, 2, 0.9997F));
}

}  // namespace
}  // namespace nucleus_bounds_test
}  // namespace unpaced
