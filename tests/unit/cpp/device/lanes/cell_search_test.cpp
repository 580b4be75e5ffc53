// Cells planned for many batches ahead are those that each batch's own search finds.
#include "device/llama/cell_search.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"

namespace cell_search_test {
namespace {

using unpaced::CellSearch;

// As llama_kv_cache::find_slot finds the cells of one batch, which it then enters into its books.
class Cells {
 public:
  Cells(std::uint32_t n, std::uint32_t head) : used(n), head(head) {}

  [[nodiscard]] std::uint32_t n_used() const {
    return static_cast<std::uint32_t>(std::ranges::count(used, true));
  }
  std::vector<std::int32_t> decode(std::uint32_t n_tokens) {
    if (head > n_used() + 2 * n_tokens) head = 0;
    std::vector<std::int32_t> found;
    while (found.size() < n_tokens) {
      if (head >= used.size()) head = 0;
      if (!used[head]) found.push_back(static_cast<std::int32_t>(head));
      ++head;
    }
    for (const std::int32_t cell : found) used[static_cast<std::size_t>(cell)] = true;
    return found;
  }

  std::vector<bool> used;
  std::uint32_t head;
};

TEST(a_plan_is_what_batches_find_one_after_the_other) {
  std::mt19937 numbers(1);
  const auto random = [&numbers] { return static_cast<std::uint32_t>(numbers()); };
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t n_cells = 1 + random() % 96;
    Cells cells(n_cells, random() % (n_cells + 1));
    for (std::uint32_t i = 0; i < n_cells; ++i) cells.used[i] = random() % 3 == 0;
    const std::uint32_t n_tokens = 1 + random() % 8;
    const Cells before = cells;
    std::vector<bool> taken;
    CellSearch search(taken, n_cells, cells.head, cells.n_used());
    for (std::uint32_t n = (n_cells - cells.n_used()) / n_tokens; n > 0; --n) {
      const std::vector<std::int32_t> expected = cells.decode(n_tokens);
      search.begin_batch(n_tokens);
      for (const std::int32_t cell : expected) {
        CHECK_EQ(search.next([&](std::uint32_t i) { return !before.used[i]; }), cell);
      }
    }
  }
}

TEST(a_plan_gives_no_cell_twice) {
  std::vector<bool> taken;
  CellSearch search(taken, 64, 40, 0);
  std::set<std::int32_t> given;
  for (int n = 0; n < 16; ++n) {
    search.begin_batch(4);
    for (int i = 0; i < 4; ++i) given.insert(search.next([](std::uint32_t) { return true; }));
  }
  CHECK_EQ(given.size(), 64U);
}

}  // namespace
}  // namespace cell_search_test
