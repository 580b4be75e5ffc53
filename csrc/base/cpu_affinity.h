// Which cores this process may use, and which of its threads run on which of them.
#pragma once

#include <span>
#include <vector>

namespace unpaced {

// Cores of the calling process's affinity mask, ascending. Empty if the mask cannot be read.
[[nodiscard]] std::vector<int> allowed_cores();

// `cores` by physical core: hyper-threads of one core are a group. Groups and their members keep
// the order of `cores`. Source: /sys/devices/system/cpu/cpuN/topology.
[[nodiscard]] std::vector<std::vector<int>> group_by_physical_core(std::span<const int> cores);

// Thread ids of this process's threads that bear the calling thread's name, ascending; a thread's
// name is its maker's at first. Source: /proc/self/task.
[[nodiscard]] std::vector<int> namesakes_of_calling_thread();

// Restricts a thread of this process to `cores`. False if the kernel refused.
bool pin_thread(int thread_id, std::span<const int> cores) noexcept;

// Restricts the calling thread to `cores`. False if the kernel refused.
bool pin_calling_thread(std::span<const int> cores) noexcept;

}  // namespace unpaced
