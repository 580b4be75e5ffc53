#include "device/launch/draw_launch.h"

#include <algorithm>
#include <stdexcept>

#include "device/state/cuda_memory.h"
#include "device/state/wide_scratch.h"

namespace unpaced {
namespace {

constexpr unsigned kBlockThreads = 1024;

// Of the current device.
int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

// Whether a launch can be part of the body of a WHILE node: CUDA has not always allowed cooperative
// ones there. Nothing is launched.
bool fits_into_loop(const void* kernel, const DrawLaunch& launch, std::int32_t n_rows,
                    void** kernel_arguments) {
  cudaGraph_t graph = nullptr;
  if (cudaGraphCreate(&graph, 0) != cudaSuccess) return false;
  cudaGraphConditionalHandle handle{};
  cudaGraphNodeParams loop = {};
  loop.type = cudaGraphNodeTypeConditional;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  cudaKernelNodeParams draw{};
  draw.func = const_cast<void*>(kernel);
  const DrawConfig config(launch, n_rows, nullptr);
  draw.gridDim = config.get().gridDim;
  draw.blockDim = config.get().blockDim;
  draw.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
  draw.kernelParams = kernel_arguments;
  cudaLaunchAttributeValue together{};
  together.cooperative = 1;
  cudaGraphExec_t executable = nullptr;
  const auto add_loop = [&] {
    loop.conditional.handle = handle;
    return cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop);
  };
  const bool fits = cudaGraphConditionalHandleCreate(&handle, graph, 0,
                                                     cudaGraphCondAssignDefault) == cudaSuccess &&
                    add_loop() == cudaSuccess &&
                    cudaGraphAddKernelNode(&node, loop.conditional.phGraph_out[0], nullptr, 0,
                                           &draw) == cudaSuccess &&
                    cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeCooperative,
                                                    &together) == cudaSuccess &&
                    cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaGetLastError();
  return fits;
}

// As many blocks as can be on the device at once, a power of two. Without a cooperative launch
// another process's kernels could keep some of them away while the others wait for them.
DrawLaunch as_grid(const void* kernel, DrawLaunch launch, std::int32_t n_rows,
                   void** kernel_arguments) {
  const auto alone = [&launch](const char* reason) {
    launch.team = DrawTeam::kBlock;
    launch.n_blocks = 1;
    launch.reason = reason;
    return launch;
  };
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) return alone("no cooperative launches");
  // Conditional nodes take none under MPS.
  if (attribute(cudaDevAttrMpsEnabled) != 0) return alone("the card is shared by MPS");
  int n_of_processor = 0;
  cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n_of_processor, kernel, kBlockThreads,
                                                           launch.shared_bytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int n_at_once = n_of_processor * attribute(cudaDevAttrMultiProcessorCount) / n_rows;
  launch.team = DrawTeam::kGrid;
  launch.n_blocks = kMaxTeamBlocks;
  while (launch.n_blocks > 1 && launch.n_blocks > n_at_once) launch.n_blocks /= 2;
  if (launch.n_blocks == 1) return alone("the card holds one block at a time");
  if (!fits_into_loop(kernel, launch, n_rows, kernel_arguments)) {
    return alone("no cooperative launches within a loop");
  }
  return launch;
}

// As many blocks in one cluster as the device can hold.
DrawLaunch as_cluster(const void* kernel, DrawLaunch launch, std::int32_t n_rows) {
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
             "cudaFuncSetAttribute");
  launch.team = DrawTeam::kCluster;
  for (launch.n_blocks = kMaxTeamBlocks; launch.n_blocks > 1; launch.n_blocks /= 2) {
    const DrawConfig config(launch, n_rows, nullptr);
    int n_clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&n_clusters, kernel, &config.get()) == cudaSuccess &&
        n_clusters > 0) {
      return launch;
    }
    cudaGetLastError();
  }
  launch.team = DrawTeam::kBlock;
  launch.reason = "the card holds no cluster of several blocks";
  return launch;
}

}  // namespace

std::string capability_text(std::int32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

const char* name_of(DrawTeam team) noexcept {
  switch (team) {
    case DrawTeam::kCluster:
      return "cluster";
    case DrawTeam::kGrid:
      return "grid";
    case DrawTeam::kBlock:
      break;
  }
  return "block";
}

CardCode card_code(const void* kernel) {
  CardCode code{.card = attribute(cudaDevAttrComputeCapabilityMajor) * 10 +
                        attribute(cudaDevAttrComputeCapabilityMinor)};
  cudaFuncAttributes found{};
  if (const cudaError_t status = cudaFuncGetAttributes(&found, kernel); status != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error("this build (for " + built_architectures() +
                             ") has no code for a card of compute capability " +
                             capability_text(code.card) + ": " + cudaGetErrorString(status));
  }
  code.ptx = found.ptxVersion;
  code.binary = found.binaryVersion;
  return code;
}

std::string built_architectures() { return UNPACED_CUDA_ARCHITECTURES; }

DrawLaunch choose_draw_launch(const void* kernel, const DrawRoom& room, const DrawLimits& limits,
                              std::int32_t n_rows, void** kernel_arguments) {
  const CardCode code = card_code(kernel);
  const auto n_shared =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  const DrawMemory memory =
      draw_memory(code.ptx * 10, room, std::min(n_shared, limits.shared_bytes));
  DrawLaunch launch{.shared_bytes = memory.shared_bytes, .keys_are_far = memory.keys_are_far};
  if (!memory.fits || cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes)) != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error("the vocabulary is too large for the device's shared memory");
  }
  if (limits.team == DrawTeam::kBlock) return launch;
  if (!has_clusters(code.ptx * 10)) return as_grid(kernel, launch, n_rows, kernel_arguments);
  if (limits.team == DrawTeam::kGrid || attribute(cudaDevAttrClusterLaunch) == 0) return launch;
  return as_cluster(kernel, launch, n_rows);
}

DrawConfig::DrawConfig(const DrawLaunch& launch, std::int32_t n_rows, cudaStream_t stream) {
  const auto n_blocks = static_cast<unsigned>(launch.n_blocks);
  config_.gridDim = dim3(n_blocks, static_cast<unsigned>(n_rows));
  config_.blockDim = dim3(kBlockThreads);
  config_.dynamicSmemBytes = launch.shared_bytes;
  config_.stream = stream;
  config_.attrs = attributes_;
  if (launch.team == DrawTeam::kCluster) {
    cudaLaunchAttribute& cluster = attributes_[config_.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {n_blocks, 1, 1};
  }
  if (launch.team == DrawTeam::kGrid) {
    cudaLaunchAttribute& together = attributes_[config_.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  } else if (launch.starts_early) {
    attributes_[config_.numAttrs++] = early_start();
  }
}

cudaLaunchAttribute early_start() noexcept {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

}  // namespace unpaced
