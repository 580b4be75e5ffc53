// Memory that states give back serves the next ones, whatever the sizes of their last parts.
#include "kept/part_pool.h"

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "check.h"

namespace part_pool_test {
namespace {

using unpaced::PartPool;
using unpaced::StatePart;

constexpr std::size_t kCellBytes = 32U << 10U;
constexpr std::int32_t kPartCells = 64;

using State = std::vector<StatePart>;

std::size_t bytes_of(const State& state) {
  std::size_t n_bytes = 0;
  for (const StatePart& part : state) n_bytes += part.n_bytes;
  return n_bytes;
}

// A cache that is full gives up its oldest states for each that comes, one part a turn, and a turn
// frees one part at most: as under a load without a pause.
TEST(what_is_spare_does_not_grow_under_load) {
  constexpr std::size_t kCacheBytes = std::size_t{512} << 20U;
  PartPool pool;
  std::deque<State> kept;
  std::size_t n_kept_bytes = 0;
  std::size_t n_most = 0;
  std::mt19937 random(7);
  for (int i = 0; i < 600; ++i) {
    auto n_cells = static_cast<std::int32_t>(1 + random() % 900);
    while (!kept.empty() &&
           n_kept_bytes + static_cast<std::size_t>(n_cells) * kCellBytes > kCacheBytes) {
      n_kept_bytes -= bytes_of(kept.front());
      for (StatePart& part : kept.front()) pool.put(std::move(part));
      kept.pop_front();
    }
    State state;
    for (; n_cells > 0; n_cells -= kPartCells) {
      const std::int32_t n = std::min(n_cells, kPartCells);
      pool.tidy();
      state.push_back(pool.take(static_cast<std::size_t>(n) * kCellBytes, n));
    }
    n_kept_bytes += bytes_of(state);
    kept.push_back(std::move(state));
    n_most = std::max(n_most, pool.n_spare_bytes());
  }
  // What one state gives back at most, and what may lie there.
  CHECK(n_most <= PartPool::kSpareBytes + 2 * 900 * kCellBytes);
}

TEST(a_part_has_room_for_what_was_asked) {
  PartPool pool;
  for (const std::size_t n_bytes : {1UL, 2UL, 3UL, 5UL, 1000UL, 4097UL, 2UL << 20U}) {
    StatePart part = pool.take(n_bytes, 1);
    CHECK(part.n_bytes == n_bytes);
    CHECK(part.capacity >= n_bytes);
    CHECK(part.bytes().size() == n_bytes);
    pool.put(std::move(part));
  }
  const std::size_t n_spare = pool.n_spare_bytes();
  StatePart again = pool.take(999, 1);
  CHECK(pool.n_spare_bytes() == n_spare - again.capacity);
}

// A megabyte that nobody has used takes milliseconds, and somebody waits for his next token.
TEST(memory_is_made_piece_by_piece) {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  PartPool pool;
  int n_pieces = 1;
  while (!pool.prepare(kBytes)) ++n_pieces;
  CHECK_EQ(n_pieces, 8);
  CHECK(pool.prepare(kBytes));
  CHECK_EQ(pool.n_spare_bytes(), kBytes);
  const StatePart part = pool.take(kBytes, 1);
  CHECK_EQ(pool.n_spare_bytes(), 0U);
  CHECK_EQ(part.capacity, kBytes);
  CHECK(!pool.prepare(kBytes));
  // Another size is wanted meanwhile.
  CHECK(pool.prepare(std::size_t{1} << 12U));
  CHECK(!pool.prepare(kBytes));
}

}  // namespace
}  // namespace part_pool_test
