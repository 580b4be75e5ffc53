#include "engine/stepper_factory.h"

#include <ggml-backend.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "host/host_stepper.h"
#include "log/log_sink.h"

#ifdef UNPACED_CUDA
#include <cuda_runtime_api.h>

#include "decode/engine_lost.h"
#include "device/card/card_report.h"
#include "device/card/card_setup.h"
#include "device/draw/sample_kernels.h"
#include "device/graph/step_part.h"
#include "device/llama/llama_bridge.h"
#include "device/prompt/prompt_start.h"
#include "device/stepper/device_stepper.h"
#include "engine/no_card.h"
#endif

namespace unpaced {
namespace {

bool wants_host(const EngineConfig& config) {
  return config.decode_loop == static_cast<std::int32_t>(DecodeLoop::kHost);
}

std::unique_ptr<Stepper> fall_back(std::shared_ptr<Model> model, const EngineConfig& config,
                                   Counters& counters, DecodeLoopReport& report,
                                   const std::string& reason) {
  report.loop = DecodeLoop::kHost;
  report.card = {};
  report.n_lanes = 0;
  report.lanes_why = "";
  report.reason = reason;
#ifdef UNPACED_CUDA
  report.residency = LlamaBridge::describe(model->context());
#endif
  report.residency.memory = memory_of(model->context());
  const bool is_default = config.decode_loop == kDecodeLoopAuto || wants_host(config);
  if (config.require_device || !is_default) {
    throw std::runtime_error("the device's decode loop is required: " + reason);
  }
  return std::make_unique<HostStepper>(std::move(model), config, counters);
}

}  // namespace

#ifdef UNPACED_CUDA

namespace {

bool uses_no_card(const EngineConfig& config) {
  return config.n_gpu_layers == 0 || config.options.uses_no_device();
}

void set_lanes(const Model& model, const EngineConfig& config, DecodeLoopReport& report) {
  report.n_lanes = std::min({config.n_lanes, config.n_slots, kMaxLanes});
  report.lanes_why = "";
  // Of more rows no kernel of ours has the bits that each has alone.
  if (config.deterministic) report.n_lanes = std::min(report.n_lanes, kRowsAsAlone);
  if (report.n_lanes == 1 || model.n_vocab() % 4 == 0) return;
  report.n_lanes = 1;
  report.lanes_why = "the rows of logits are not aligned";
}

// With as many lanes as the report has.
std::unique_ptr<DeviceStepper> make_prepared(const std::shared_ptr<Model>& model,
                                             const EngineConfig& config, Counters& counters,
                                             DecodeLoop loop, const DrawLimits& limits,
                                             DecodeLoopReport& report) {
  auto stepper =
      std::make_unique<DeviceStepper>(model, config, counters, loop, limits, report.n_lanes);
  try {
    stepper->prepare(config.n_slots);
    if (auto prompts = start_prompts(*model, config, counters, report)) {
      stepper->take(std::move(prompts));
    }
  } catch (const EngineLost& e) {
    static_cast<void>(stepper.release());  // see engine_lost.h
    throw EngineLost(std::string(e.what()) +
                     " in the loop's self-test; --decode-loop host does without the loop");
  }
  return stepper;
}

// refusal: why one block draws alone where several were to.
std::unique_ptr<DeviceStepper> make_by_team(const std::shared_ptr<Model>& model,
                                            const EngineConfig& config, Counters& counters,
                                            DecodeLoop loop, DecodeLoopReport& report,
                                            std::string& refusal) {
  try {
    return make_prepared(model, config, counters, loop, DrawLimits{}, report);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception& e) {
    // Where several blocks draw without a cluster, it may be they that CUDA refuses.
    if (has_clusters(step_kernel_code().ptx * 10)) throw;
    refusal = e.what();
    return make_prepared(model, config, counters, loop, DrawLimits{.team = DrawTeam::kBlock},
                         report);
  }
}

std::unique_ptr<DeviceStepper> make_device_stepper(const std::shared_ptr<Model>& model,
                                                   const EngineConfig& config, Counters& counters,
                                                   DecodeLoop loop, DecodeLoopReport& report,
                                                   std::string& refusal) {
  set_lanes(*model, config, report);
  try {
    return make_by_team(model, config, counters, loop, report, refusal);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception& e) {
    if (report.n_lanes == 1) throw;
    // It may be only the company that cannot be had.
    report.n_lanes = 1;
    report.lanes_why = e.what();
    llama_memory_clear(llama_get_memory(model->context()), true);
    return make_by_team(model, config, counters, loop, report, refusal);
  }
}

// ggml's kernels are compiled for the same architectures as ours. Empty: none runs, or the build
// has the card's instructions.
std::string ptx_that_is_compiled(const Residency& residency) {
  if (residency.cards.empty()) return "";
  const CardCode code = step_kernel_code();
  return code.ptx == code.binary ? "" : capability_text(code.ptx);
}

std::unique_ptr<Stepper> choose_stepper(std::shared_ptr<Model> model, const EngineConfig& config,
                                        Counters& counters, DecodeLoopReport& report) {
  if (wants_host(config)) {
    return fall_back(std::move(model), config, counters, report, "the configuration asks for it");
  }
  if (uses_no_card(config)) {
    return fall_back(std::move(model), config, counters, report, "no layer is on the GPU");
  }
  if (const std::string obstacle = device_loop_obstacle(config.options); !obstacle.empty()) {
    return fall_back(std::move(model), config, counters, report, obstacle);
  }
  const bool ahead = config.decode_loop == static_cast<std::int32_t>(DecodeLoop::kAhead);
  const DecodeLoop loop = ahead ? DecodeLoop::kAhead : DecodeLoop::kDevice;
  try {
    std::string refusal;
    auto stepper = make_device_stepper(model, config, counters, loop, report, refusal);
    report.card = report_card(stepper->device(), stepper->draw());
    if (!refusal.empty()) report.card.draw_reason = refusal;
    report.loop = loop;
    report.reason = ahead ? "the configuration asks for it" : "";
    report.residency = stepper->residency();
    report.phases = stepper->phases();
    report.phase_trials = stepper->phase_trials();
    report.lane_steps = stepper->lane_steps();
    report.residency.memory = memory_of(model->context());
    return stepper;
  } catch (const EngineLost&) {
    throw;  // the host's stepper would not get far either
  } catch (const std::exception& e) {
    return fall_back(std::move(model), config, counters, report, e.what());
  }
}

}  // namespace

EngineConfig with_usable_cards(const EngineConfig& config) {
  int n_devices = 0;
  if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
    cudaGetLastError();
    return config;
  }
  const UsableCards cards = set_up_cards(config, n_devices);
  for (const std::string& sentence : cards.left_out) log_warning("left out: " + sentence);
  return cards.config;
}

EngineConfig configure_device(const EngineConfig& config) {
  int n_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaSuccess && n_devices > 0) return with_usable_cards(config);
  cudaGetLastError();
  if (uses_no_card(config) && !config.require_device) return config;
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::string reason = status == cudaSuccess ? "none is visible" : cudaGetErrorString(status);
  const std::string hidden = what_hides_cards("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
  reason += (hidden.empty() ? "" : "; ") + hidden;
  throw std::runtime_error(why_no_card(driver, runtime, reason));
}

std::unique_ptr<Stepper> make_stepper(std::shared_ptr<Model> model, const EngineConfig& config,
                                      Counters& counters, DecodeLoopReport& report) {
  report.choice = model->card_choice();
  auto stepper = choose_stepper(std::move(model), config, counters, report);
  report.compiled_from = ptx_that_is_compiled(report.residency);
  return stepper;
}

#else

namespace {

std::string why_host() {
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    if (type != GGML_BACKEND_DEVICE_TYPE_GPU && type != GGML_BACKEND_DEVICE_TYPE_IGPU) continue;
    return std::string("the GPU's own loop is written for CUDA, and this build's GPU is ") +
           ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)) + "'s";
  }
  return "this build has no GPU support, or found no GPU";
}

}  // namespace

EngineConfig with_usable_cards(const EngineConfig& config) { return config; }

EngineConfig configure_device(const EngineConfig& config) { return with_usable_cards(config); }

std::unique_ptr<Stepper> make_stepper(std::shared_ptr<Model> model, const EngineConfig& config,
                                      Counters& counters, DecodeLoopReport& report) {
  report.choice = model->card_choice();
  return fall_back(std::move(model), config, counters, report, why_host());
}

#endif

}  // namespace unpaced
