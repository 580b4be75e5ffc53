// Which cores this process may use, and pinning of the calling thread to some of them.
#pragma once

#include <span>
#include <vector>

namespace unpaced {

// Cores of the calling process's affinity mask, ascending. Empty if the mask cannot be read.
[[nodiscard]] std::vector<int> allowed_cores();

// Physical cores among `cores` (hyper-threads of one core count once); at least 1.
// Source: /sys/devices/system/cpu/cpuN/topology.
[[nodiscard]] int count_physical_cores(std::span<const int> cores);

// Restricts the calling thread to `cores`. False if the kernel refused.
bool pin_calling_thread(std::span<const int> cores) noexcept;

}  // namespace unpaced
