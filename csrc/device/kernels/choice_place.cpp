#include "device/kernels/choice_place.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <ggml.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

cudaDeviceProp properties(int device) {
  cudaDeviceProp known{};
  cuda_check(cudaGetDeviceProperties(&known, device), "cudaGetDeviceProperties");
  return known;
}

// CUDA tells only which of its versions a driver is for.
std::string driver() {
  int version = 0;
  cuda_check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return std::to_string(version) + " " + line;
}

// Size and time of the file that has this code: what is compiled anew is another build.
std::string file_of(const void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  const std::filesystem::path path = info.dli_fname;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return "";
  const auto time = std::filesystem::last_write_time(path, error);
  return std::to_string(size) + " " + std::to_string(time.time_since_epoch().count());
}

}  // namespace

std::string choice_path(const std::string& folder, int device) {
  if (folder.empty()) return "";
  std::string name = properties(device).name;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return folder + "/" + name + ".choices";
}

std::string choice_place(int device) {
  const cudaDeviceProp card = properties(device);
  return std::string(card.name) + " with " + std::to_string(card.multiProcessorCount) +
         " multiprocessors; driver " + driver() + "; ours " +
         file_of(reinterpret_cast<const void*>(&choice_place)) + "; ggml " + ggml_commit() + " " +
         file_of(reinterpret_cast<const void*>(&ggml_commit));
}

}  // namespace unpaced
