#include "backend/cpu_backend.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>

namespace unpaced {
namespace {

std::filesystem::path library_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

// From this folder alone: ggml's own search begins in the interpreter's folder and goes on in the
// working directory, where anybody may have put a library.
void register_backends() {
  if (ggml_backend_reg_by_name("CPU") != nullptr) return;
  const std::filesystem::path folder = std::filesystem::path(llama_library()).parent_path();
  ggml_backend_load_all_from_path(folder.c_str());
  if (ggml_backend_reg_by_name("CPU") == nullptr) {
    throw std::runtime_error("no libggml-cpu*.so in " + folder.string() +
                             " runs on this processor");
  }
}

template <class Function>
Function* cpu_function(const char* name) {
  const ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
  return reinterpret_cast<Function*>(ggml_backend_reg_get_proc_address(cpu, name));
}

std::filesystem::path cpu_library_path() {
  return library_of(reinterpret_cast<const void*>(
      cpu_function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")));
}

// Of a function that the library exports but its registry does not tell of.
template <class Function>
Function* exported_cpu_function(const char* name) {
  void* library = dlopen(cpu_library_path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void* function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) throw std::runtime_error(std::string("libggml-cpu lacks ") + name);
  return reinterpret_cast<Function*>(function);
}

}  // namespace

void init_backends() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_backends();
    llama_backend_init();
  });
}

ggml_threadpool* new_ggml_threadpool(ggml_threadpool_params& params) {
  return cpu_function<decltype(ggml_threadpool_new)>("ggml_threadpool_new")(&params);
}

void free_ggml_threadpool(ggml_threadpool* pool) noexcept {
  cpu_function<decltype(ggml_threadpool_free)>("ggml_threadpool_free")(pool);
}

PauseThreadpool* find_ggml_threadpool_pause() {
  return exported_cpu_function<PauseThreadpool>("ggml_threadpool_pause");
}

std::string llama_library() {
  return library_of(reinterpret_cast<const void*>(&llama_backend_init)).string();
}

std::string cpu_library() { return cpu_library_path().filename().string(); }

}  // namespace unpaced
