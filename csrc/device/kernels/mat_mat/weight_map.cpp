#include "device/kernels/mat_mat/weight_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>

#include "device/state/cuda_memory.h"

namespace unpaced::mat_mat {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's own library is not linked.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = {};
  constexpr unsigned kVersion = 12000;
  cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kVersion,
                                              cudaEnableDefault, &result),
             "cudaGetDriverEntryPointByVersion");
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw std::runtime_error("the driver has no tensor maps");
  return reinterpret_cast<Encode>(found);
}

constexpr std::uint32_t kElementBytes = 2;

WeightMap weight_map(const TaskMatrix& matrix) {
  static const Encode encode = find_encode();
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.row_bytes) / kElementBytes,
                               static_cast<cuuint64_t>(matrix.n_rows)};
  const cuuint64_t stride = static_cast<cuuint64_t>(matrix.row_bytes);
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(matrix.row_pitch) / kElementBytes, kTileRows};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap made;
  const CUresult result =
      encode(&made, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, const_cast<std::uint8_t*>(matrix.weights),
             sizes, &stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("a matrix has no tensor map");
  WeightMap map;
  static_assert(sizeof map == sizeof made);
  std::memcpy(&map, &made, sizeof map);
  return map;
}

}  // namespace

WeightMaps weight_maps(const Task& task) {
  WeightMaps maps = {};
  for (std::int32_t i = 0; i < kMatVecMatrices; ++i) {
    if (task.matrices[i].weights != nullptr) maps.of[i] = weight_map(task.matrices[i]);
  }
  return maps;
}

}  // namespace unpaced::mat_mat
