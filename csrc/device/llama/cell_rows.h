// The rows of KV cells in device memory, copied between where they lie and one packed block.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace unpaced {

// A tensor of K or V: cell i's row begins at first + i * n_bytes.
struct CellRows {
  std::byte* first;
  std::uint32_t n_bytes;
  std::uint32_t before;  // of a cell, in the tensors before this one
};

// Rows are copied by so many bytes at a time.
inline constexpr std::uint32_t kRowUnit = 16;

enum class RowCopy : std::uint8_t { kPack, kUnpack };

// Has CUDA load the kernels now. At a kernel's first launch it may wait for all that the GPU is in
// the midst of, a whole launch of the loop.
void load_copy_kernels();

// Enqueues the copy of n cells. All pointers are the device's: n_tensors `rows`, n `cells`, and
// `packed`, which has the rows of one tensor after the other's.
void copy_rows(RowCopy direction, const CellRows* rows, std::int32_t n_tensors,
               const std::int32_t* cells, std::int32_t n, std::byte* packed, cudaStream_t stream);

}  // namespace unpaced
