// DRY's tables on the device: penalties and sequence breakers, uploaded with a request.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/state/cuda_memory.h"
#include "device/state/loop_state.h"
#include "sampling/chain/repetition.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class DryMemory {
 public:
  DryMemory(std::int32_t n_vocab, std::int32_t n_ctx);

  // Whether the breakers fit.
  [[nodiscard]] static bool fits(const DryBreakers& breakers) noexcept;

  // Enqueues the upload; nothing of the last request may run any more. Off without DRY.
  [[nodiscard]] DeviceDry upload(const Repetition& repetition, const DryBreakers& breakers,
                                 cudaStream_t stream);

 private:
  template <class T>
  struct Table {
    explicit Table(std::size_t n) : device(n), staging(n) {}
    DeviceArray<T> device;
    PinnedArray<T> staging;
  };
  template <class T>
  static void copy_up(Table<T>& table, const T* from, std::size_t n, cudaStream_t stream);

  DeviceArray<TokenId> touched_;
  Table<float> penalty_;
  Table<DryBreakers::Entry> entries_;
  Table<TokenId> tails_;
  Table<std::uint64_t> heads_;
};

}  // namespace unpaced
