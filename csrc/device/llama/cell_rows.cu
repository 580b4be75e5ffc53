#include "device/llama/cell_rows.h"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

constexpr unsigned kBlock = 64;

// One row a block. The packed side is the host's memory: each block's reads and writes there are
// adjacent.
template <RowCopy kDirection>
__global__ void copy_row(const CellRows* rows, const std::int32_t* cells, std::byte* packed) {
  const CellRows row = rows[blockIdx.y];
  const auto cell = static_cast<std::size_t>(cells[blockIdx.x]);
  auto* there = reinterpret_cast<uint4*>(row.first + cell * row.n_bytes);
  auto* here = reinterpret_cast<uint4*>(packed + std::size_t{row.before} * gridDim.x +
                                        std::size_t{blockIdx.x} * row.n_bytes);
  for (std::uint32_t i = threadIdx.x; i < row.n_bytes / kRowUnit; i += kBlock) {
    if constexpr (kDirection == RowCopy::kPack) {
      here[i] = there[i];
    } else {
      there[i] = here[i];
    }
  }
}

void load(const void* kernel) {
  cudaFuncAttributes attributes = {};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}

}  // namespace

void load_copy_kernels() {
  load(reinterpret_cast<const void*>(copy_row<RowCopy::kPack>));
  load(reinterpret_cast<const void*>(copy_row<RowCopy::kUnpack>));
}

void copy_rows(RowCopy direction, const CellRows* rows, std::int32_t n_tensors,
               const std::int32_t* cells, std::int32_t n, std::byte* packed, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(n_tensors));
  if (direction == RowCopy::kPack) {
    copy_row<RowCopy::kPack><<<grid, kBlock, 0, stream>>>(rows, cells, packed);
  } else {
    copy_row<RowCopy::kUnpack><<<grid, kBlock, 0, stream>>>(rows, cells, packed);
  }
  cuda_check(cudaGetLastError(), "copy_row");
}

}  // namespace unpaced
