#include "cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace unpaced {
namespace {

// The kernel's list of a core's hyper-threads names the physical core; "0-1" and "0,64" are both
// seen, so the text itself is the key.
std::string thread_siblings(int core) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(core) +
                     "/topology/thread_siblings_list");
  std::string siblings;
  std::getline(file, siblings);
  return siblings.empty() ? std::to_string(core) : siblings;
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

int count_physical_cores(std::span<const int> cores) {
  std::set<std::string> physical;
  for (const int core : cores) physical.insert(thread_siblings(core));
  return std::max(1, static_cast<int>(physical.size()));
}

bool pin_calling_thread(std::span<const int> cores) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  }
  return CPU_COUNT(&set) > 0 && sched_setaffinity(0, sizeof(set), &set) == 0;
}

}  // namespace unpaced
