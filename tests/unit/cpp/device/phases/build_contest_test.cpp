// Which builds whole steps decide between, and how (device/phases/trials/build_contest.h).
#include "device/phases/trials/build_contest.h"

#include <cstdint>
#include <map>
#include <vector>

#include "check.h"

namespace build_contest_test {
namespace {

using namespace unpaced;
using Builds = std::vector<std::int32_t>;

TEST(builds_nearly_as_fast_are_tried_the_fastest_first) {
  CHECK(nearly_fastest({{0, 10.5}, {1, 10.0}, {2, 10.7}, {3, 30.0}}) == Builds({1, 0}));
  CHECK(nearly_fastest({{0, 5.0}, {1, 9.0}}) == Builds({0}));
  CHECK(nearly_fastest({{0, 1.0}, {1, 1.0}, {2, 1.0}, {3, 1.0}, {4, 1.0}}) == Builds({0, 1, 2, 3}));
}

TEST(the_first_build_is_tried_however_slow_it_is_by_itself) {
  CHECK(nearly_fastest({{0, 9.0}, {1, 5.0}, {2, 5.1}}) == Builds({1, 2, 0}));
  CHECK(nearly_fastest({{0, 2.0}, {1, 1.0}, {2, 1.0}, {3, 1.0}, {4, 1.0}, {5, 1.0}}) ==
        Builds({1, 2, 3, 4, 0}));
}

TEST(what_serves_is_tried_first) {
  CHECK(begun_by({1, 2, 0}, 0) == Builds({0, 1, 2}));
  CHECK(begun_by({1, 2, 0}, 2) == Builds({2, 1, 0}));
  CHECK(begun_by({1, 2, 0}, 1) == Builds({1, 2, 0}));
  CHECK(begun_by({1, 2}, 7) == Builds({1, 2}));
}

TEST(a_step_decides) {
  const std::map<std::int32_t, double> steps = {{1, 2.0}, {0, 1.9}, {7, 1.95}};
  Builds tried;
  const auto step = [&](std::int32_t build) {
    tried.push_back(build);
    return steps.at(build);
  };
  CHECK_EQ(settled({1, 0, 7}, step, [] { return true; }), 0);
  CHECK(tried == Builds({1, 0, 7}));
  // Time for one: that one is the fastest by itself, too.
  tried.clear();
  CHECK_EQ(settled({1, 0, 7}, step, [&] { return tried.empty(); }), 1);
  CHECK(tried == Builds({1}));
  CHECK_EQ(settled({7, 1}, step, [] { return false; }), 7);
}

}  // namespace
}  // namespace build_contest_test
