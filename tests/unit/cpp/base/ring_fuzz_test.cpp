// SpscRing between two threads: every record arrives once, whole and in order, whatever the
// capacity, the burst lengths and the pauses.
#include <random>

#include "base/spsc_ring.h"
#include "check.h"
#include "numbered_record.h"
#include "random_pause.h"

namespace ring_fuzz_test {
namespace {

using unpaced::SpscRing;
using unpaced::test::NumberedRecord;
using unpaced::test::pause_at_random;

constexpr std::size_t kMaxBurst = 37;

void write_all(SpscRing<NumberedRecord>& ring, std::uint64_t n_records, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  NumberedRecord burst[kMaxBurst];
  for (std::uint64_t next = 0; next < n_records;) {
    std::size_t n = std::min<std::uint64_t>(1 + random() % kMaxBurst, n_records - next);
    if (random() % 2 == 0) n = 1;
    for (std::size_t i = 0; i < n; ++i) burst[i] = NumberedRecord::of(next + i);
    const std::size_t n_pushed =
        n == 1 ? std::size_t{ring.try_push(burst[0])} : ring.try_push_many(burst, n);
    next += n_pushed;
    if (n_pushed == 0) std::this_thread::yield();
    pause_at_random(random);
  }
}

void read_all(SpscRing<NumberedRecord>& ring, std::uint64_t n_records, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  NumberedRecord burst[kMaxBurst];
  for (std::uint64_t next = 0; next < n_records;) {
    const std::size_t max = random() % 2 == 0 ? 1 : 1 + random() % kMaxBurst;
    const std::size_t n =
        max == 1 ? std::size_t{ring.try_pop(burst[0])} : ring.pop_many(burst, max);
    REQUIRE(ring.size_approx() <= ring.capacity());
    for (std::size_t i = 0; i < n; ++i) REQUIRE(burst[i].is(next + i));
    next += n;
    if (n == 0) std::this_thread::yield();
    pause_at_random(random);
  }
}

void fuzz(std::size_t capacity, std::uint64_t n_records) {
  SpscRing<NumberedRecord> ring(capacity);
  std::thread writer([&] { write_all(ring, n_records, 1000 + capacity); });
  read_all(ring, n_records, 2000 + capacity);
  writer.join();
  NumberedRecord extra;
  CHECK(!ring.try_pop(extra));
}

constexpr std::uint64_t kRecords = 2'000'000 / kSanitizerSlowdown;

TEST(one_slot) { fuzz(1, kRecords / 20); }
TEST(two_slots) { fuzz(2, kRecords / 10); }
TEST(eight_slots) { fuzz(8, kRecords / 2); }
TEST(as_many_slots_as_a_burst) { fuzz(32, kRecords); }
TEST(many_slots) { fuzz(1024, kRecords); }

}  // namespace
}  // namespace ring_fuzz_test
