#include "device/card/card_report.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "device/draw/sample_kernels.h"

namespace unpaced {
namespace {

// As ggml decides for its own kernels, which are compiled for the same architectures.
// Source: llama.cpp 0c1e57098 ggml-cuda/common.cuh (ggml_cuda_kernel_can_use_pdl).
bool launches_programmatically(const CardCode& code) {
  const char* asked = std::getenv("GGML_CUDA_PDL");
  return code.ptx >= 90 && (asked == nullptr || std::atoi(asked) != 0);
}

}  // namespace

CardReport report_card(int device, const DrawLaunch& draw) {
  const CardCode code = step_kernel_code();
  CardReport report;
  report.index = device;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) report.name = properties.name;
  cudaGetLastError();
  report.compute_capability = capability_text(code.card);
  report.code_from = capability_text(code.ptx);
  report.code_for = capability_text(code.binary);
  report.built_for = built_architectures();
  report.draw_team = name_of(draw.team);
  report.n_draw_blocks = draw.n_blocks;
  report.draw_reason = draw.reason;
  report.programmatic_launches = launches_programmatically(code);
  return report;
}

}  // namespace unpaced
