#include "device/prompt/prompt_start.h"

#include <ggml.h>
#include <llama.h>

#include <exception>
#include <string>

#include "decode/engine_lost.h"
#include "device/card/gpu_test.h"

namespace unpaced {
namespace {

// Attention of several tokens converts a quantised cache, a window of it at a time: what memory
// that takes hangs on the model.
std::string obstacle(const EngineConfig& config) {
  const auto is_quantised = [](std::int32_t type) {
    return ggml_is_quantized(static_cast<ggml_type>(type));
  };
  if (config.kernels == static_cast<std::int32_t>(StepKernels::kGgml))
    return "the configuration asks for ggml's kernels";
  if (is_quantised(config.cache_type_k) || is_quantised(config.cache_type_v))
    return "the KV cache is quantised";
  return "";
}

std::unique_ptr<PromptGraphs> make_tested(const Model& model, const EngineConfig& config,
                                          Counters& counters) {
  auto prompts = std::make_unique<PromptGraphs>(
      model.context(), model.n_vocab(), static_cast<StepKernels>(config.kernels),
      std::chrono::microseconds(config.stall_us), counters);
  try {
    prompts->test();
  } catch (const EngineLost&) {
    static_cast<void>(prompts.release());  // see engine_lost.h
    throw;
  }
  return prompts;
}

}  // namespace

std::unique_ptr<PromptGraphs> start_prompts(const Model& model, const EngineConfig& config,
                                            Counters& counters, DecodeLoopReport& report) {
  report.prompts_why = obstacle(config);
  if (!report.prompts_why.empty()) return nullptr;
  GpuTest watched(counters);
  watched.begin();
  std::unique_ptr<PromptGraphs> prompts;
  try {
    prompts = make_tested(model, config, counters);
    report.prompt_lengths = prompts->report();
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception& e) {
    report.prompts_why = e.what();
  }
  watched.end();
  llama_memory_clear(llama_get_memory(model.context()), true);
  return prompts;
}

}  // namespace unpaced
