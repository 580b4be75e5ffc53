#include <algorithm>

#include "device/lane/masked_row.h"
#include "sampling/arithmetic/float_math.h"

namespace unpaced {
namespace {

__global__ void mask_row(const float* row, const std::uint32_t* allowed, std::int32_t n_vocab,
                         float* logits) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n_vocab) return;
  logits[i] = (allowed[i / 32] >> (i % 32) & 1U) != 0U ? row[i] : -kInfinity;
}

}  // namespace

MaskedRow::MaskedRow(std::int32_t n_vocab)
    : n_vocab_(n_vocab),
      row_(static_cast<std::size_t>(n_vocab)),
      allowed_(static_cast<std::size_t>(n_vocab) / 32 + 1),
      staging_(allowed_.size()) {}

void MaskedRow::keep(const float* logits, cudaStream_t stream) const {
  cuda_check(cudaMemcpyAsync(row_.data(), logits, row_.size() * sizeof(float),
                             cudaMemcpyDeviceToDevice, stream),
             "cudaMemcpyAsync");
}

void MaskedRow::restore(float* logits, std::span<const std::uint32_t> allowed,
                        cudaStream_t stream) {
  const std::size_t n = std::min(allowed.size(), staging_.size());
  std::copy_n(allowed.begin(), n, staging_.data());
  std::fill(staging_.data() + n, staging_.data() + staging_.size(), 0U);
  cuda_check(
      cudaMemcpyAsync(allowed_.data(), staging_.data(), staging_.size() * sizeof(std::uint32_t),
                      cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
  constexpr std::int32_t kBlock = 256;
  const auto n_blocks = static_cast<unsigned>((n_vocab_ + kBlock - 1) / kBlock);
  mask_row<<<n_blocks, kBlock, 0, stream>>>(row_.data(), allowed_.data(), n_vocab_, logits);
  cuda_check(cudaGetLastError(), "mask_row");
}

}  // namespace unpaced
