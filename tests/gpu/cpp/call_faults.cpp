// Has calls of the engine's extension fail as if there were no memory, and llama.cpp's state change
// under its hands. For LD_PRELOAD: the extension's calls come here first; llama.cpp's own, and
// those that are to succeed, go on.
#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>

namespace {

constexpr int kNoMemory = 2;  // cudaErrorMemoryAllocation

struct Refusals {
  const char* call;
  std::atomic<std::int64_t> n_left;
};

Refusals instantiate{"cudaGraphInstantiate", {0}};
Refusals launch{"cudaGraphLaunch", {0}};
Refusals place{"ggml_backend_sched_alloc_graph", {0}};

// What happens within the next call, once.
std::atomic<bool> moves_buffer{false};  // of ggml_backend_sched_alloc_graph
std::atomic<bool> takes_cell{false};    // of cudaGraphLaunch
std::atomic<llama_context*> context{nullptr};

bool is_engine(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "_native") != nullptr;
}

bool refuses(Refusals& refusals, const void* caller) {
  if (refusals.n_left.load() <= 0 || !is_engine(caller)) return false;
  return refusals.n_left.fetch_sub(1) > 0;
}

template <class Function>
Function* in_library(const char* name, const char* call) {
  return reinterpret_cast<Function*>(dlsym(dlopen(name, RTLD_NOW | RTLD_NOLOAD), call));
}

template <class Function>
Function* real(const char* call) {
  return in_library<Function>("libcudart.so.13", call);
}

// ggml's functions, which this library does not link.
#define GGML(call) (*in_library<decltype(call)>("libggml-base.so", #call))
#define LLAMA(call) (*in_library<decltype(call)>("libllama.so", #call))

// As a larger batch would need it: what was placed in the scheduler's buffer is elsewhere after.
void reserve_much(ggml_backend_sched_t scheduler) {
  constexpr std::int64_t kFloats = 16LL << 20U;
  ggml_context* tensors = GGML(ggml_init)({1U << 20U, nullptr, true});
  ggml_tensor* from = GGML(ggml_new_tensor_1d)(tensors, GGML_TYPE_F32, kFloats);
  GGML(ggml_set_input)(from);
  ggml_cgraph* graph = GGML(ggml_new_graph)(tensors);
  ggml_tensor* to = GGML(ggml_scale)(tensors, from, 2.0F);
  GGML(ggml_build_forward_expand)(graph, to);
  ggml_backend_t gpu = GGML(ggml_backend_sched_get_backend)(scheduler, 0);
  GGML(ggml_backend_sched_set_tensor_backend)(scheduler, to, gpu);
  GGML(ggml_backend_sched_reserve)(scheduler, graph);
  GGML(ggml_free)(tensors);
}

// The first slot's sequence gets another token, where its next one is to go.
void take_cell() {
  const llama_pos last = LLAMA(llama_memory_seq_pos_max)(LLAMA(llama_get_memory)(context), 0);
  llama_token token = 0;
  llama_pos position = last + 1;
  llama_seq_id sequence = 0;
  llama_seq_id* sequences = &sequence;
  std::int32_t n_sequences = 1;
  std::int8_t logits = 1;
  const llama_batch batch{1, &token, nullptr, &position, &n_sequences, &sequences, &logits};
  LLAMA(llama_decode)(context, batch);
  LLAMA(llama_synchronize)(context);
}

template <class Function>
Function* gpu_fault(const char* name) {
  const std::string library =
      std::string(std::getenv("UNPACED_GPU_PROGRAMS")) + "/libgpu_faults.so";
  return reinterpret_cast<Function*>(dlsym(dlopen(library.c_str(), RTLD_NOW), name));
}

// Once, if the process was started so: the GPU hangs from the engine's first launch on, which is
// the loop's self-test.
void occupy_at_start() {
  static std::atomic<bool> is_done{false};
  const char* milliseconds = std::getenv("UNPACED_OCCUPY_AT_LAUNCH");
  if (milliseconds == nullptr || is_done.exchange(true)) return;
  gpu_fault<int(unsigned)>("gpu_occupy")(static_cast<unsigned>(std::atoi(milliseconds)));
}

// As cudaLaunchConfig_t begins.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  std::size_t shared_bytes;
  void* stream;
};

// If the process was started so: the kernel of this number never ends, of those that the engine
// launches with attributes. The first ones are a step's phases, in their start-up test.
void hang_at_kernel(void* stream) {
  static std::atomic<int> n_launched{0};
  const char* number = std::getenv("UNPACED_HANG_AT_KERNEL");
  if (number == nullptr || ++n_launched != std::atoi(number)) return;
  gpu_fault<int(void*, unsigned)>("gpu_hang")(
      stream, static_cast<unsigned>(std::atoi(std::getenv("UNPACED_HANG_MS"))));
}

}  // namespace

// So many calls of this name fail from here on. 0: done; -1: it cannot be refused.
extern "C" int fault_refuse(const char* call, std::int64_t n) {
  for (Refusals* refusals : {&instantiate, &launch, &place}) {
    if (std::strcmp(refusals->call, call) != 0) continue;
    refusals->n_left = n;
    return 0;
  }
  return -1;
}

// The buffer of the decode graphs moves when the next one is made.
extern "C" int fault_move_buffer() {
  moves_buffer = true;
  return 0;
}

// The first cell of the next launch is taken by then.
extern "C" int fault_take_cell() {
  takes_cell = true;
  return 0;
}

extern "C" int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  if (refuses(instantiate, __builtin_return_address(0))) return kNoMemory;
  return real<int(void**, void*, unsigned long long)>(instantiate.call)(executable, graph, flags);
}

extern "C" int cudaGraphLaunch(void* executable, void* stream) {
  const void* caller = __builtin_return_address(0);
  if (refuses(launch, caller)) return kNoMemory;
  if (is_engine(caller) && takes_cell.exchange(false)) take_cell();
  if (is_engine(caller)) occupy_at_start();
  return real<int(void*, void*)>(launch.call)(executable, stream);
}

extern "C" int cudaLaunchKernelExC(const LaunchConfig* config, const void* kernel, void** values) {
  if (is_engine(__builtin_return_address(0))) hang_at_kernel(config->stream);
  return real<int(const LaunchConfig*, const void*, void**)>("cudaLaunchKernelExC")(config, kernel,
                                                                                    values);
}

extern "C" llama_context* llama_init_from_model(llama_model* model, llama_context_params params) {
  return context = LLAMA(llama_init_from_model)(model, params);
}

extern "C" bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t scheduler, ggml_cgraph* graph) {
  const void* caller = __builtin_return_address(0);
  if (refuses(place, caller)) return false;
  if (is_engine(caller) && moves_buffer.exchange(false)) reserve_much(scheduler);
  return GGML(ggml_backend_sched_alloc_graph)(scheduler, graph);
}
