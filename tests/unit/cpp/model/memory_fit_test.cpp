// What fit_to_memory leaves of a context and of the layers on GPUs, for a model whose needs are
// known: 100 bytes a layer and 10 a cell and layer, on device GPU0 where the layer is, else on the
// host.
#include "model/memory_fit.h"

#include <algorithm>
#include <stdexcept>

#include "check.h"

namespace memory_fit_test {
namespace {

using unpaced::EngineConfig;
using unpaced::fit_to_memory;
using unpaced::FittedConfig;
using unpaced::MemoryPlan;
using unpaced::MemoryUse;

constexpr std::int32_t kLayers = 4;  // and one more for the output
constexpr std::int32_t kTrain = 8192;

MemoryPlan plan(const EngineConfig& config) {
  const std::int32_t all = kLayers + 1;
  const std::int32_t n_gpu = config.n_gpu_layers < 0 ? all : config.n_gpu_layers;
  const std::int32_t n_ctx = config.n_ctx == 0 ? kTrain : config.n_ctx;
  MemoryPlan made;
  made.n_ctx_train = kTrain;
  made.n_layer = kLayers;
  for (const bool on_gpu : {true, false}) {
    const auto n = static_cast<std::size_t>(on_gpu ? n_gpu : all - n_gpu);
    MemoryUse use;
    use.is_host = !on_gpu;
    use.device_name = on_gpu ? "GPU0" : "";
    use.model_bytes = n * 100;
    use.context_bytes = n * static_cast<std::size_t>(n_ctx) * 10;
    if (n > 0) made.uses.push_back(use);
  }
  return made;
}

EngineConfig open_config(std::int32_t n_slots, bool kv_unified) {
  EngineConfig config;
  config.fit = true;
  config.n_slots = n_slots;
  config.kv_unified = kv_unified;
  config.fit_margins = {1000};
  config.fit_n_ctx_min = 1024;
  return config;
}

FittedConfig fit(const EngineConfig& config, std::size_t free_bytes) {
  return fit_to_memory(config, plan, {{"GPU0", "", free_bytes, free_bytes}});
}

constexpr std::size_t bytes_with(std::size_t n_ctx) { return 5 * (100 + n_ctx * 10) + 1000; }

TEST(what_fits_is_left_alone) {
  const FittedConfig fitted = fit(open_config(1, false), bytes_with(kTrain));
  CHECK(fitted.config.n_ctx == 0);
  CHECK(fitted.config.n_gpu_layers == -1);
  CHECK(fitted.change.empty());
}

TEST(slots_that_do_not_share_have_the_training_context_each) {
  CHECK(fit(open_config(3, false), bytes_with(3 * kTrain)).config.n_ctx == 3 * kTrain);
  CHECK(fit(open_config(3, true), bytes_with(3 * kTrain)).config.n_ctx == 0);
}

TEST(the_context_becomes_as_large_as_fits) {
  const FittedConfig fitted = fit(open_config(1, false), bytes_with(5000));
  CHECK(fitted.config.n_ctx == 5000 / 256 * 256);
  CHECK(fitted.config.n_gpu_layers == -1);
  CHECK(!fitted.change.empty());
  CHECK(fit(open_config(2, false), bytes_with(5000)).config.n_ctx == 5000 / 512 * 512);
}

// As the graphs of the GPU's loop: so many at most.
MemoryPlan plan_with_loop(const EngineConfig& config) {
  MemoryPlan made = plan(config);
  const std::int32_t n_ctx = config.n_ctx == 0 ? kTrain : config.n_ctx;
  made.uses.front().loop_bytes = 30 * static_cast<std::size_t>(std::min(n_ctx, 2048));
  return made;
}

TEST(what_stops_growing_is_counted_in_full) {
  const std::size_t free_bytes = bytes_with(4096) + 30 * 2048;
  const FittedConfig fitted =
      fit_to_memory(open_config(1, false), plan_with_loop, {{"GPU0", "", free_bytes, free_bytes}});
  CHECK(fitted.config.n_ctx > 3500);
  CHECK(fitted.config.n_ctx <= 4096);
  CHECK(fitted.config.n_gpu_layers == -1);
}

TEST(then_layers_leave_the_gpu) {
  // With the least context a layer takes 100 + 10240 bytes: two of them fit.
  const FittedConfig fitted = fit(open_config(1, false), 1000 + 2 * 10340 + 5000);
  CHECK(fitted.config.n_ctx == 1024);
  CHECK(fitted.config.n_gpu_layers == 2);
  CHECK(fit(open_config(1, false), 500).config.n_gpu_layers == 0);
}

TEST(what_was_given_stays) {
  EngineConfig config = open_config(1, false);
  config.n_ctx = 4096;
  CHECK(fit(config, bytes_with(2000)).config.n_ctx == 4096);
  CHECK(fit(config, bytes_with(2000)).config.n_gpu_layers == 2);
  config.n_gpu_layers = -2;
  CHECK(fit(config, 0).config.n_gpu_layers == -2);
  config = open_config(1, false);
  config.fit = false;
  CHECK(fit(config, 0).config.n_ctx == 0);
  config = open_config(1, false);
  config.n_gpu_layers = -2;
  config.fit_n_ctx_min = 2147483647;
  CHECK(fit(config, 0).config.n_ctx == 0);
}

TEST(without_a_device_the_host_counts) {
  EngineConfig config = open_config(1, false);
  config.n_gpu_layers = 0;
  config.fit_host_bytes = static_cast<std::int64_t>(bytes_with(5000));
  const FittedConfig fitted = fit_to_memory(config, plan, {});
  CHECK(fitted.config.n_ctx == 5000 / 256 * 256);
  CHECK(fitted.config.n_gpu_layers == 0);
}

TEST(a_model_that_cannot_be_read_is_left_to_the_load) {
  const auto fails = [](const EngineConfig&) -> MemoryPlan { throw std::runtime_error("no"); };
  CHECK(fit_to_memory(open_config(2, false), fails, {}).config.n_ctx == 0);
}

}  // namespace
}  // namespace memory_fit_test
