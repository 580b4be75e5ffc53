#include "backend/rpc_backend.h"

#include <ggml-backend.h>
#include <ggml-rpc.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "backend/cpu_backend.h"

namespace unpaced {
namespace {

template <class Function>
Function* rpc_function(const char* name) {
  init_backends();
  const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
  if (rpc == nullptr)
    throw std::runtime_error(
        "this build of llama.cpp has no RPC (make build PROFILE=cpu-rpc, or cuda-rpc)");
  return reinterpret_cast<Function*>(ggml_backend_reg_get_proc_address(rpc, name));
}

std::vector<ggml_backend_dev_t> devices_of(const std::vector<std::string>& names) {
  std::vector<ggml_backend_dev_t> devices;
  for (const std::string& name : names) {
    devices.push_back(ggml_backend_dev_by_name(name.c_str()));
    if (devices.back() == nullptr) throw std::runtime_error("there is no device " + name);
  }
  if (!names.empty()) return devices;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const auto type = ggml_backend_dev_type(device);
    if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
      devices.push_back(device);
    }
  }
  if (devices.empty()) {
    devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
  }
  return devices;
}

}  // namespace

void add_rpc_workers(const std::vector<std::string>& endpoints) {
  static std::mutex mutex;
  static std::vector<std::string> added;
  const std::lock_guard lock(mutex);
  for (const std::string& endpoint : endpoints) {
    if (std::ranges::find(added, endpoint) != added.end()) continue;
    const auto add =
        rpc_function<decltype(ggml_backend_rpc_add_server)>("ggml_backend_rpc_add_server");
    const ggml_backend_reg_t worker = add(endpoint.c_str());
    if (worker == nullptr) throw std::runtime_error(endpoint + " has no device");
    ggml_backend_register(worker);
    added.push_back(endpoint);
  }
}

void run_rpc_worker(const std::string& endpoint, int n_threads,
                    const std::vector<std::string>& devices) {
  const auto serve =
      rpc_function<decltype(ggml_backend_rpc_start_server)>("ggml_backend_rpc_start_server");
  std::vector<ggml_backend_dev_t> chosen = devices_of(devices);
  serve(endpoint.c_str(), nullptr, static_cast<std::size_t>(n_threads), chosen.size(),
        chosen.data());
}

}  // namespace unpaced
