#include "base/cpu_affinity.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace unpaced {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The kernel's list of a core's hyper-threads names the physical core; "0-1" and "0,64" are both
// seen, so the text itself is the key.
std::string thread_siblings(int core) {
  const std::string siblings = first_line("/sys/devices/system/cpu/cpu" + std::to_string(core) +
                                          "/topology/thread_siblings_list");
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

std::vector<std::vector<int>> group_by_physical_core(std::span<const int> cores) {
  std::vector<std::vector<int>> groups;
  std::map<std::string, std::size_t> group_of;
  for (const int core : cores) {
    const auto [it, is_new] = group_of.try_emplace(thread_siblings(core), groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(core);
  }
  return groups;
}

std::vector<int> namesakes_of_calling_thread() {
  const std::filesystem::path tasks = "/proc/self/task";
  const std::string name = first_line(tasks / std::to_string(gettid()) / "comm");
  std::vector<int> threads;
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    if (first_line(task.path() / "comm") != name) continue;
    threads.push_back(std::stoi(task.path().filename()));
  }
  std::ranges::sort(threads);
  return threads;
}

bool pin_thread(int thread_id, std::span<const int> cores) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  }
  return CPU_COUNT(&set) > 0 && sched_setaffinity(thread_id, sizeof(set), &set) == 0;
}

bool pin_calling_thread(std::span<const int> cores) noexcept { return pin_thread(0, cores); }

}  // namespace unpaced
