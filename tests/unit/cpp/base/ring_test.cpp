// SpscRing on one thread: order, wrap-around, full, empty, bursts, misuse.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <random>
#include <stdexcept>

#include "base/spsc_ring.h"
#include "check.h"
#include "numbered_record.h"
#include "request/records.h"

namespace {

using unpaced::SpscRing;
using unpaced::test::NumberedRecord;

// One line pair for each side and one for what both only read.
static_assert(sizeof(SpscRing<int>) >= 3 * unpaced::kInterferenceBytes);
static_assert(alignof(SpscRing<int>) == unpaced::kInterferenceBytes);
static_assert(!std::is_copy_constructible_v<SpscRing<int>>);
static_assert(!std::is_move_constructible_v<SpscRing<int>>);
static_assert(noexcept(std::declval<SpscRing<int>&>().try_push(0)));

bool constructor_throws(std::size_t capacity) {
  try {
    SpscRing<int> ring(capacity);
    return false;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

TEST(capacity_must_be_a_power_of_two) {
  for (const std::size_t bad : {0, 3, 5, 6, 7, 9, 1000, 1023, 1025}) CHECK(constructor_throws(bad));
  for (std::size_t good = 1; good <= 4096; good *= 2) {
    CHECK_EQ(SpscRing<int>(good).capacity(), good);
  }
}

TEST(full_ring_refuses_and_keeps_what_it_has) {
  for (std::size_t capacity = 1; capacity <= 64; capacity *= 2) {
    SpscRing<std::size_t> ring(capacity);
    for (std::size_t i = 0; i < capacity; ++i) CHECK(ring.try_push(i));
    CHECK_EQ(ring.size_approx(), capacity);
    CHECK(!ring.try_push(999));
    CHECK(!ring.try_push(999));
    std::size_t value = 0;
    CHECK(ring.try_pop(value));
    CHECK_EQ(value, 0U);
    CHECK(ring.try_push(capacity));
    CHECK(!ring.try_push(999));
    for (std::size_t i = 1; i <= capacity; ++i) {
      CHECK(ring.try_pop(value));
      CHECK_EQ(value, i);
    }
    CHECK_EQ(ring.size_approx(), 0U);
  }
}

TEST(empty_ring_gives_nothing_and_leaves_the_target) {
  SpscRing<int> ring(4);
  int value = 7;
  CHECK(!ring.try_pop(value));
  CHECK_EQ(value, 7);
  CHECK_EQ(ring.pop_many(&value, 1), 0U);
  CHECK_EQ(ring.pop_many(&value, 0), 0U);
  CHECK_EQ(ring.try_push_many(&value, 0), 0U);
  CHECK(ring.try_push(1));
  CHECK(ring.try_pop(value));
  CHECK(!ring.try_pop(value));
  CHECK_EQ(value, 1);
}

TEST(burst_is_cut_at_the_free_space_and_wraps) {
  SpscRing<int> ring(8);
  const std::vector<int> source{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<int> target(10, -1);
  CHECK_EQ(ring.try_push_many(source.data(), 5), 5U);
  CHECK_EQ(ring.pop_many(target.data(), 5), 5U);
  // Three up to the end of the storage, five from its start, two refused.
  CHECK_EQ(ring.try_push_many(source.data(), 10), 8U);
  CHECK_EQ(ring.try_push_many(source.data(), 1), 0U);
  CHECK_EQ(ring.pop_many(target.data(), 10), 8U);
  for (int i = 0; i < 8; ++i) CHECK_EQ(target[static_cast<std::size_t>(i)], i);
  CHECK_EQ(target[8], -1);
}

// Random pushes and pops, single and in bursts, beside a deque.
void compare_with_deque(std::size_t capacity, std::uint64_t seed) {
  SpscRing<NumberedRecord> ring(capacity);
  std::deque<std::uint64_t> oracle;
  std::mt19937_64 random(seed);
  std::vector<NumberedRecord> buffer(2 * capacity + 1);
  std::uint64_t next = 0;
  for (int turn = 0; turn < 20000 / kSanitizerSlowdown; ++turn) {
    const std::size_t n = random() % (2 * capacity + 1);
    if (random() % 2 == 0) {
      for (std::size_t i = 0; i < n; ++i) buffer[i] = NumberedRecord::of(next + i);
      const std::size_t n_pushed =
          n == 1 ? std::size_t{ring.try_push(buffer[0])} : ring.try_push_many(buffer.data(), n);
      CHECK_EQ(n_pushed, std::min(n, capacity - oracle.size()));
      for (std::size_t i = 0; i < n_pushed; ++i) oracle.push_back(next++);
    } else {
      const std::size_t n_popped =
          n == 1 ? std::size_t{ring.try_pop(buffer[0])} : ring.pop_many(buffer.data(), n);
      CHECK_EQ(n_popped, std::min(n, oracle.size()));
      for (std::size_t i = 0; i < n_popped; ++i) {
        CHECK(buffer[i].is(oracle.front()));
        oracle.pop_front();
      }
    }
    CHECK_EQ(ring.size_approx(), oracle.size());
  }
}

TEST(ring_agrees_with_a_deque_at_every_size) {
  for (std::size_t capacity = 1; capacity <= 256; capacity *= 2) {
    compare_with_deque(capacity, 20260 + capacity);
  }
}

TEST(token_events_survive_the_ring_bit_for_bit) {
  SpscRing<unpaced::TokenEvent> ring(2);
  unpaced::TokenEvent event{};
  event.request_id = 1ULL << 60;
  event.sequence_number = 4'000'000'000U;
  event.kind = unpaced::EventKind::kToken;
  event.token = {.token = 42, .logprob = -0.5F, .n_decoded = 3};
  CHECK(ring.try_push(event));
  unpaced::TokenEvent back{};
  CHECK(ring.try_pop(back));
  CHECK_EQ(back.request_id, event.request_id);
  CHECK_EQ(back.sequence_number, event.sequence_number);
  CHECK_EQ(back.token.token, 42);
  CHECK_EQ(back.token.logprob, -0.5F);
}

// What must abort runs in a program of its own: this one again, with the name of the misuse.
void use_from_two_threads(std::string_view side) {
  SpscRing<int> ring(4);
  const auto use = [&ring, side] {
    int value = 0;
    if (side == "writer") {
      (void)ring.try_push(value);
    } else {
      (void)ring.try_pop(value);
    }
  };
  use();
  std::thread(use).join();
}

bool aborts(const char* side) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    ::execl("/proc/self/exe", "ring_test", "--misuse", side, nullptr);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(second_writer_or_reader_aborts_where_checks_are_on) {
  static_assert(UNPACED_CHECK_THREADS == 1, "the tests are built with the checks on");
  CHECK(aborts("writer"));
  CHECK(aborts("reader"));
}

TEST(sides_can_be_handed_over_when_quiet) {
  SpscRing<int> ring(4);
  CHECK(ring.try_push(1));
  ring.forget_threads();
  std::thread([&ring] { CHECK(ring.try_push(2)); }).join();
  int value = 0;
  CHECK(ring.try_pop(value));
  CHECK_EQ(value, 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--misuse") {
    use_from_two_threads(argv[2]);
    return 0;
  }
  return unpaced::test::run_all(argc, argv);
}
