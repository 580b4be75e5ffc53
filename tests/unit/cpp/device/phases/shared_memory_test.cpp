// Places of values that are wanted at different times: none has another's bytes while both are.
#include "device/phases/shared_memory.h"

#include <cstddef>
#include <random>
#include <vector>

#include "check.h"

namespace shared_memory_test {
namespace {

using namespace unpaced;

TEST(what_is_over_makes_room) {
  SharedMemory memory(256);
  CHECK_EQ(memory.place(1000, 0, 2), std::size_t{0});
  CHECK_EQ(memory.place(100, 1, 1), std::size_t{1024});
  CHECK_EQ(memory.place(300, 2, 3), std::size_t{1024});  // the second one is over
  CHECK_EQ(memory.place(2000, 3, 9), std::size_t{1536});
  CHECK_EQ(memory.place(200, 4, 9), std::size_t{0});
  CHECK_EQ(memory.n_bytes(), std::size_t{1536 + 2048});
}

TEST(values_of_one_time_never_meet) {
  struct Value {
    std::size_t begin, end, from, until;
  };
  std::mt19937 random(3);
  for (int turn = 0; turn < 200; ++turn) {
    SharedMemory memory(256);
    std::vector<Value> values;
    std::size_t n_all = 0;
    for (std::size_t from = 0; from < 60; ++from) {
      const std::size_t n = 1 + random() % 5000, until = from + random() % 6;
      const std::size_t at = memory.place(n, from, until);
      CHECK_EQ(at % 256, std::size_t{0});
      CHECK(at + n <= memory.n_bytes());
      for (const Value& other : values) {
        const bool meet = from <= other.until && until >= other.from;
        CHECK(!meet || at + n <= other.begin || at >= other.end);
      }
      values.push_back({at, at + n, from, until});
      n_all += n;
    }
    CHECK(memory.n_bytes() < n_all / 3);
  }
}

}  // namespace
}  // namespace shared_memory_test
