// What is learnt of how many cells a part may have, from quick parts, slow ones and interruptions.
#include "kept/part_size.h"

#include "check.h"

namespace part_size_test {
namespace {

using unpaced::PartSize;

constexpr std::int32_t kMost = 512;
constexpr std::int64_t kCallUs = 20;  // of a part, besides its cells
constexpr std::int64_t kPauseUs = 4000;

// Parts of the size that is asked for, each of whose cells takes so long.
void copy(PartSize& size, int n_parts, double cell_us, std::int64_t pause_us = 0) {
  for (int i = 0; i < n_parts; ++i) {
    const auto cells_us = static_cast<std::int64_t>(cell_us * size.n());
    size.learn(size.n(), kCallUs + cells_us + pause_us, kMost);
  }
}

TEST(quick_parts_grow_up_to_the_largest) {
  PartSize size;
  CHECK_EQ(size.n(), 1);
  CHECK(size.n_quick() >= kMost);
  copy(size, 20, 0.1);
  CHECK_EQ(size.n(), kMost);
  CHECK(size.n_quick() >= kMost);
}

TEST(a_states_last_part_says_nothing) {
  PartSize size;
  copy(size, 3, 0.1);
  size.learn(5, kPauseUs, kMost);
  CHECK_EQ(size.n(), 8);
  CHECK(size.n_quick() >= kMost);
}

TEST(slow_parts_shrink_and_are_known_as_slow) {
  for (const double cell_us : {3.0, 14.0, 20.0, 100.0}) {
    PartSize slower;
    copy(slower, 12, 0.1);
    copy(slower, 40, cell_us);
    CHECK(slower.n() * cell_us < 2 * 750);
    CHECK(slower.n_quick() * cell_us < 2 * 750);
    CHECK(slower.n_quick() * cell_us > 0.2 * 750);
  }
}

TEST(an_interruption_makes_the_next_part_smaller_and_nothing_else) {
  // At every size that parts have on their way to the largest.
  for (int n_before = 1; n_before < 12; ++n_before) {
    PartSize size;
    copy(size, n_before, 0.1);
    const std::int32_t n = size.n();
    copy(size, 1, 0.1, kPauseUs);
    CHECK_EQ(size.n(), n / 2);
    CHECK(size.n_quick() >= kMost);
    copy(size, 12, 0.1);
    CHECK_EQ(size.n(), kMost);
  }
}

TEST(interruptions_now_and_then_are_no_slow_parts) {
  for (const int n_between : {2, 3, 5, 9}) {
    PartSize size;
    for (int i = 0; i < 50; ++i) {
      copy(size, n_between, 0.1);
      copy(size, 1, 0.1, kPauseUs);
      CHECK(size.n_quick() >= kMost);
    }
  }
}

TEST(what_became_slow_is_known_after_two_parts) {
  PartSize size;
  copy(size, 12, 0.1);
  copy(size, 1, 100);
  CHECK(size.n_quick() >= kMost);
  copy(size, 20, 100);
  CHECK(size.n_quick() <= 8);
  copy(size, 20, 0.1);
  CHECK_EQ(size.n_quick(), kMost);
}

}  // namespace
}  // namespace part_size_test
