// Has CUDA calls of the engine's extension fail as if there were no memory. For LD_PRELOAD: the
// extension's calls come here first; ggml's, and those that are to succeed, go on to the runtime.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int kNoMemory = 2;  // cudaErrorMemoryAllocation

struct Refusals {
  const char* call;
  std::atomic<std::int64_t> n_left;
};

Refusals instantiate{"cudaGraphInstantiate", {0}};
Refusals launch{"cudaGraphLaunch", {0}};

bool is_engine(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "_native") != nullptr;
}

bool refuses(Refusals& refusals, const void* caller) {
  if (refusals.n_left.load() <= 0 || !is_engine(caller)) return false;
  return refusals.n_left.fetch_sub(1) > 0;
}

template <class Function>
Function* real(const char* call) {
  void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(runtime, call));
}

}  // namespace

// So many calls of this name fail from here on. 0: done; -1: it cannot be refused.
extern "C" int cuda_refuse(const char* call, std::int64_t n) {
  for (Refusals* refusals : {&instantiate, &launch}) {
    if (std::strcmp(refusals->call, call) != 0) continue;
    refusals->n_left = n;
    return 0;
  }
  return -1;
}

extern "C" int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  if (refuses(instantiate, __builtin_return_address(0))) return kNoMemory;
  return real<int(void**, void*, unsigned long long)>(instantiate.call)(executable, graph, flags);
}

extern "C" int cudaGraphLaunch(void* executable, void* stream) {
  if (refuses(launch, __builtin_return_address(0))) return kNoMemory;
  return real<int(void*, void*)>(launch.call)(executable, stream);
}
