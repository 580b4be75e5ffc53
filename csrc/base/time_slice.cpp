#include "base/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace unpaced {
namespace {

// struct sched_attr of linux/sched/types.h, which cannot be included beside sched.h everywhere.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns;
  std::uint64_t deadline_ns;
  std::uint64_t period_ns;
};

constexpr std::uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK

// The flags are those that the thread gets besides the ones it has.
bool set_slice(int thread, std::chrono::nanoseconds slice, std::uint64_t flags) noexcept {
  SchedulingAttributes now{};
  if (syscall(SYS_sched_getattr, thread, &now, sizeof(now), 0) != 0) return false;
  if (now.policy != SCHED_OTHER) return true;  // a real-time thread never waits for others
  now.flags |= flags;
  now.runtime_ns = static_cast<std::uint64_t>(slice.count());
  return syscall(SYS_sched_setattr, thread, &now, 0) == 0;
}

}  // namespace

bool shorten_time_slice(std::chrono::nanoseconds slice) noexcept {
  return set_slice(0, slice, kResetOnFork);
}

bool let_others_preempt(int thread) noexcept {
  return set_slice(thread, std::chrono::milliseconds(6), 0);
}

}  // namespace unpaced
