// Owns the memory of a WideScratch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/state/cuda_memory.h"
#include "device/state/wide_scratch.h"

namespace unpaced {

class WideMemory {
 public:
  explicit WideMemory(std::int32_t n_vocab)
      : WideMemory(static_cast<std::size_t>(n_vocab),
                   static_cast<std::size_t>((n_vocab + kPage - 1) / kPage)) {}

  [[nodiscard]] WideScratch scratch() const noexcept {
    return {.items = {items_[0].data(), items_[1].data()},
            .value = value_.data(),
            .raw = raw_.data(),
            .page_sum = page_sum_.data(),
            .page_plan = page_plan_.data(),
            .page_start = page_start_.data(),
            .page_count = page_count_.data(),
            .histogram = histogram_.data(),
            .partial = partial_.data(),
            .broadcast = broadcast_.data(),
            .u = u_.data(),
            .nucleus_sums = nucleus_sums_.data(),
            .nucleus_mass = nucleus_mass_.data(),
            .listed = listed_.data(),
            .n_listed = n_listed_.data(),
            .repetition = repetition_.data()};
  }

 private:
  WideMemory(std::size_t n_vocab, std::size_t n_pages)
      : items_{DeviceArray<Item>(n_vocab), DeviceArray<Item>(n_vocab)},
        value_(n_pages * kPage),
        raw_(n_vocab),
        page_sum_(n_pages),
        page_plan_(n_pages * kPagePlanBytes),
        page_start_(n_pages),
        page_count_(n_pages),
        histogram_(static_cast<std::size_t>(kMaxTeamBlocks) * kRadixBuckets),
        partial_(2 * kMaxTeamBlocks),
        broadcast_(kBroadcastWords + 1),
        u_(1),
        nucleus_sums_(kMaxTeamBlocks * kNucleusRoom),
        nucleus_mass_(static_cast<std::size_t>(kMaxTeamBlocks) * kMassBuckets),
        listed_(kMaxSureListed),
        n_listed_(1),
        repetition_(n_vocab) {
    fill_now(repetition_.data(), 0, n_vocab * sizeof(std::int32_t));
    fill_now(broadcast_.data(), 0, broadcast_.size() * sizeof(std::uint64_t));
  }

  DeviceArray<Item> items_[2];
  DeviceArray<float> value_;
  DeviceArray<float> raw_;
  DeviceArray<double> page_sum_;
  DeviceArray<unsigned char> page_plan_;
  DeviceArray<double> page_start_;
  DeviceArray<std::int32_t> page_count_;
  DeviceArray<std::uint32_t> histogram_;
  DeviceArray<std::uint64_t> partial_;
  DeviceArray<std::uint64_t> broadcast_;
  DeviceArray<double> u_;
  DeviceArray<double> nucleus_sums_;
  DeviceArray<std::uint32_t> nucleus_mass_;
  DeviceArray<std::uint64_t> listed_;
  DeviceArray<std::int32_t> n_listed_;
  DeviceArray<std::int32_t> repetition_;
};

}  // namespace unpaced
