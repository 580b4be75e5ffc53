#include "device/lane/dry_memory.h"

#include <algorithm>

namespace unpaced {
namespace {

constexpr std::size_t kMaxEntries = 65536;
constexpr std::size_t kMaxTails = 262144;

}  // namespace

// A repetition is as long as the text at most, which is one token longer than the context.
DryMemory::DryMemory(std::int32_t n_vocab, std::int32_t n_ctx)
    : touched_(static_cast<std::size_t>(n_ctx) + 1),
      penalty_(static_cast<std::size_t>(n_ctx) + 2),
      entries_(kMaxEntries),
      tails_(kMaxTails),
      heads_(static_cast<std::size_t>(n_vocab) / 64 + 1) {}

bool DryMemory::fits(const DryBreakers& breakers) noexcept {
  return breakers.entries.size() <= kMaxEntries && breakers.tails.size() <= kMaxTails;
}

template <class T>
void DryMemory::copy_up(Table<T>& table, const T* from, std::size_t n, cudaStream_t stream) {
  if (n == 0) return;
  std::copy_n(from, n, table.staging.data());
  cuda_check(cudaMemcpyAsync(table.device.data(), table.staging.data(), n * sizeof(T),
                             cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
}

DeviceDry DryMemory::upload(const Repetition& repetition, const DryBreakers& breakers,
                            cudaStream_t stream) {
  DeviceDry dry{};
  dry.last_n = repetition.dry_last_n();
  dry.touched = touched_.data();
  if (dry.last_n == 0) return dry;
  const DryParams& params = repetition.dry();
  dry.allowed_length = params.allowed_length;
  const auto n_penalties = static_cast<std::int32_t>(penalty_.device.size());
  const std::int32_t max_exponent = dry_max_exponent(params.base);
  const std::int32_t longest =
      max_exponent > 0 ? std::min(max_exponent, n_penalties - 1) : n_penalties - 1;
  dry.max_match =
      longest > INT32_MAX - dry.allowed_length ? INT32_MAX : dry.allowed_length + longest;
  float* penalty = penalty_.staging.data();
  for (std::int32_t i = 0; i <= longest; ++i) penalty[i] = dry_penalty(params, i);
  cuda_check(cudaMemcpyAsync(penalty_.device.data(), penalty,
                             static_cast<std::size_t>(longest + 1) * sizeof(float),
                             cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
  dry.penalty = penalty_.device.data();
  dry.breakers.n_entries = repetition.breakers().n_entries;
  if (dry.breakers.n_entries == 0) return dry;
  copy_up(entries_, breakers.entries.data(), breakers.entries.size(), stream);
  copy_up(tails_, breakers.tails.data(), breakers.tails.size(), stream);
  copy_up(heads_, repetition.breakers().is_head, heads_.device.size(), stream);
  dry.breakers.entries = entries_.device.data();
  dry.breakers.tails = tails_.device.data();
  dry.breakers.is_head = heads_.device.data();
  return dry;
}

}  // namespace unpaced
