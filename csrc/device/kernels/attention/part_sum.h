// What a block of the attention kernel makes of its warps' sums: a part of the head's, and the last
// of the head's parts the head's values.
#pragma once

#include <cstdint>

#include "device/kernels/attention/warp_order.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::attention {

template <int kSize, class Place>
class PartSum {
 public:
  // Of warps that have met.
  UNPACED_BOTH PartSum(const HeadAttention& task, Place& place, const Shared<kSize>& shared)
      : task_(task), place_(place), shared_(shared) {}

  UNPACED_BOTH void leave() {
    float rescale[kWarps];
    const PartTop top = warps_top(rescale);
    if (task_.n_parts == 1) {
      for_values([&](int i) { put(i, place_.quotient(part_sum(rescale, i), top.total)); });
    } else {
      for_values([&](int i) { place_.leave_sum(i, part_sum(rescale, i)); });
      if (place_.thread() == 0) place_.leave_top(top);
      if (!place_.is_last_part()) return place_.end_writes(task_.next_is_ours);
      const PartsPlace from = place_.parts_left();
      for_values([&](int i) { put(i, combined(from, i)); });
    }
    put_padding();
    place_.end_writes(task_.next_is_ours);
  }

 private:
  // Every warp makes them, each with the same bits.
  UNPACED_BOTH PartTop warps_top(float (&rescale)[kWarps]) const {
    const int lane = place_.thread() % kLanes;
    float top = shared_.tops[0];
    UNPACED_UNROLL
    for (int w = 1; w < kWarps; ++w) top = place_.larger(top, shared_.tops[w]);
    float totals[kWarps];
    UNPACED_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      rescale[w] = place_.power(mat_vec::sum(shared_.tops[w], -top));
      totals[w] = mat_vec::product(shared_.powers[w][lane], rescale[w]);
    }
    UNPACED_UNROLL
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      UNPACED_UNROLL
      for (int w = 0; w < kWarps; ++w) {
        totals[w] = mat_vec::sum(totals[w], place_.shuffle_xor(totals[w], distance));
      }
    }
    // A butterfly of four.
    return {top,
            mat_vec::sum(mat_vec::sum(totals[0], totals[2]), mat_vec::sum(totals[1], totals[3]))};
  }

  UNPACED_BOTH float part_sum(const float (&rescale)[kWarps], int value) const {
    float sum = 0.0F;
    UNPACED_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      UNPACED_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        sum = mat_vec::sum(sum, mat_vec::product(shared_.sums[w][g][value], rescale[w]));
      }
    }
    return sum;
  }

  // What happens to each value of the head, 32 that follow one another in a warp.
  template <class Body>
  UNPACED_BOTH void for_values(const Body& body) const {
    UNPACED_UNROLL
    for (int i = 0; i < kSize; i += kThreads) {
      const int value = i + place_.thread();
      if (kSize % kThreads == 0 || value < kSize) body(value);
    }
  }

  UNPACED_BOTH float combined(const PartsPlace& from, int value) const {
    const int n = place_.n_parts();
    float top = from.tops[0].top;
    for (int i = 1; i < n; ++i) top = place_.larger(top, from.tops[i].top);
    float numerator = 0.0F;
    float denominator = 0.0F;
    for (int i = 0; i < n; ++i) {
      const float rescale = place_.power(mat_vec::sum(from.tops[i].top, -top));
      numerator = mat_vec::fused(rescale, from.sums[i * kSize + value], numerator);
      denominator = mat_vec::fused(rescale, from.tops[i].total, denominator);
    }
    return place_.quotient(numerator, denominator);
  }

  // Whole warps call it, with 32 values that follow one another.
  UNPACED_BOTH void put(int i, float value) const {
    const std::int64_t at = static_cast<std::int64_t>(place_.head()) * kSize + i;
    if (task_.out != nullptr) task_.out[at] = value;
    if (task_.rounded != nullptr) place_.round(value, task_, static_cast<int>(at / kQ8Values));
  }

  // Zeros behind the row's end, by one of the heads.
  UNPACED_BOTH void put_padding() const {
    if (task_.rounded == nullptr || place_.head() != 0) return;
    const std::int32_t n_padded =
        (task_.n_heads * kSize + kQ8RowPadding - 1) / kQ8RowPadding * kQ8RowPadding;
    for (int i = task_.n_heads * kSize / kQ8Values + place_.thread() / kLanes;
         i < n_padded / kQ8Values; i += kWarps) {
      place_.round(0.0F, task_, i);
    }
  }

  const HeadAttention& task_;
  Place& place_;
  const Shared<kSize>& shared_;
};

}  // namespace unpaced::attention
