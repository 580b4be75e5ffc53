#include "backend/cpu_backend.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>

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

std::string llama_library() {
  return library_of(reinterpret_cast<const void*>(&llama_backend_init)).string();
}

std::string cpu_library() {
  const void* address =
      ggml_backend_reg_get_proc_address(ggml_backend_reg_by_name("CPU"), "ggml_threadpool_new");
  return library_of(address).filename().string();
}

}  // namespace unpaced
