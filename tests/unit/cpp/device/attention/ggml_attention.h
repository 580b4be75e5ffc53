// One query's attention as ggml-cuda computes it (flash_attn_ext_vec of fattn-vec.cuh, then
// flash_attn_combine_results of fattn-common.cuh): every thread's operations in its order, hidden
// cells included.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/kernels/head_attention.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::test {

// What -use_fast_math makes of expf.
inline float fast_exp(float x) {
  return mat_vec::flushed(std::exp2(mat_vec::product(x, 1.44269502F)));
}

class GgmlAttention {
 public:
  explicit GgmlAttention(const HeadAttention& task) : task_(task), size_(task.head_size) {}

  // A head's values.
  [[nodiscard]] std::vector<float> head(std::int32_t number) {
    head_ = number;
    std::vector<Part> parts;
    for (std::int32_t y = 0; y < task_.n_parts; ++y) parts.push_back(part(y));
    std::vector<float> values(static_cast<std::size_t>(size_));
    if (task_.n_parts == 1) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = parts[0].sums[i] / parts[0].total;
      return values;
    }
    float top = parts[0].top;
    for (const Part& p : parts) top = std::fmax(top, p.top);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float numerator = 0;
      float denominator = 0;
      for (const Part& p : parts) {
        const float scale = fast_exp(mat_vec::sum(p.top, -top));
        numerator = mat_vec::fused(scale, p.sums[i], numerator);
        denominator = mat_vec::fused(scale, p.total, denominator);
      }
      values[i] = numerator / denominator;
    }
    return values;
  }

 private:
  static constexpr int kLanes = 32;
  static constexpr int kWarps = 4;
  using Lanes = std::array<float, kLanes>;

  struct Part {
    std::vector<float> sums;
    float top;
    float total;
  };
  struct Warp {
    std::array<std::vector<float>, kLanes> sums;  // VKQ
    Lanes top{};                                  // KQ_max
    Lanes total{};                                // KQ_sum
  };

  static void add_butterfly(Lanes& lanes, int from, int to) {
    for (int offset = from; offset >= to; offset /= 2) {
      const Lanes before = lanes;
      for (int l = 0; l < kLanes; ++l) {
        lanes[at(l)] = mat_vec::sum(before[at(l)], before[at(l ^ offset)]);
      }
    }
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  [[nodiscard]] float half(const CachedHeads& heads, std::int32_t cell, int i) const {
    const auto* row = heads.data + head_ / task_.n_sharing * heads.head_stride +
                      static_cast<std::int64_t>(cell) * heads.stride;
    return mat_vec::half_value(reinterpret_cast<const std::uint16_t*>(row)[i]);
  }
  // Value i of those that a lane has, as an index of the head's.
  static int index(int lane, int i) { return i / 8 * 64 + lane % 8 * 8 + i % 8; }

  [[nodiscard]] float lane_dot(std::int32_t cell, int lane) const {
    float dot = 0;
    for (int i = 0; i < size_ / 8; ++i) {
      const int k = index(lane, i);
      const float q = mat_vec::product(task_.queries[head_ * task_.query_stride + k], task_.scale);
      dot = mat_vec::fused(half(task_.keys, cell, k), q, dot);
    }
    return dot;
  }

  void take(Warp& warp, std::int32_t first) const {
    Lanes scores{};
    Lanes top = warp.top;
    for (int i = 0; i < 8; ++i) {
      Lanes dots{};
      for (int l = 0; l < kLanes; ++l) dots[at(l)] = lane_dot(first + l / 8 * 8 + i, l);
      add_butterfly(dots, 4, 1);
      for (int l = 0; l < kLanes; ++l) {
        float score = dots[at(l)];
        if (task_.cap != 0) score = mat_vec::product(task_.cap, std::tanh(score));
        score = mat_vec::sum(score, mat_vec::half_value(task_.mask[first + l / 8 * 8 + i]));
        top[at(l)] = std::fmax(top[at(l)], mat_vec::sum(score, 3.0F * 0.6931F));
        if (l % 8 == i) scores[at(l)] = score;
      }
    }
    const float highest = *std::ranges::max_element(top);
    Lanes powers{};
    for (int l = 0; l < kLanes; ++l)
      powers[at(l)] = fast_exp(mat_vec::sum(scores[at(l)], -highest));
    for (int l = 0; l < kLanes; ++l) {
      const float rescale = fast_exp(mat_vec::sum(warp.top[at(l)], -highest));
      warp.top[at(l)] = highest;
      warp.total[at(l)] = mat_vec::fused(warp.total[at(l)], rescale, powers[at(l)]);
      for (int i = 0; i < size_ / 8; ++i) {
        float& sum = warp.sums[at(l)][at(i)];
        for (int k = l / 8; k < kLanes; k += 4) {
          const float value = half(task_.values, first + k, index(l, i));
          const float power = powers[at(k)];
          // The compiler fuses the rescaling with the first addition.
          sum = k < 4 ? mat_vec::fused(rescale, sum, mat_vec::product(value, power))
                      : mat_vec::fused(value, power, sum);
        }
      }
    }
  }

  void take_sink(Warp& warp) const {
    const float sink = task_.sinks[head_];
    for (int l = 0; l < kLanes; ++l) {
      const float top = std::fmax(sink, warp.top[at(l)]);
      const float rescale = fast_exp(mat_vec::sum(warp.top[at(l)], -top));
      const float power = l == 0 ? fast_exp(mat_vec::sum(sink, -top)) : 0.0F;
      warp.top[at(l)] = top;
      warp.total[at(l)] = mat_vec::fused(warp.total[at(l)], rescale, power);
      for (float& sum : warp.sums[at(l)]) sum = mat_vec::product(sum, rescale);
    }
  }

  [[nodiscard]] Part part(std::int32_t y) const {
    std::array<Warp, kWarps> warps;
    for (int w = 0; w < kWarps; ++w) {
      Warp& warp = warps[at(w)];
      warp.top.fill(-1.70141173e38F);
      for (auto& sums : warp.sums) sums.assign(at(size_ / 8), 0.0F);
      for (std::int32_t k = y * 128; k < task_.n_cells; k += task_.n_parts * 128) {
        take(warp, k + 32 * w);
      }
      if (w == 0 && y == 0 && task_.sinks != nullptr) take_sink(warp);
    }
    float top = -1.70141173e38F;
    for (const Warp& warp : warps) top = std::fmax(top, warp.top[0]);
    Part made{std::vector<float>(at(size_), 0.0F), top, 0};
    Lanes totals{};
    for (int w = 0; w < kWarps; ++w) {
      Warp& warp = warps[at(w)];
      const float rescale = fast_exp(mat_vec::sum(warp.top[0], -top));
      Lanes scaled{};
      for (int l = 0; l < kLanes; ++l) {
        scaled[at(l)] = mat_vec::product(warp.total[at(l)], rescale);
        for (float& sum : warp.sums[at(l)]) sum = mat_vec::product(sum, rescale);
      }
      add_butterfly(scaled, 16, 1);
      totals[at(w)] = scaled[0];
      for (int group = 0; group < 4; ++group) {
        for (int l = 0; l < 8; ++l) {
          for (int i = 0; i < size_ / 8; ++i) {
            float& sum = made.sums[at(index(l, i))];
            sum = mat_vec::sum(sum, warp.sums[at(group * 8 + l)][at(i)]);
          }
        }
      }
    }
    add_butterfly(totals, 16, 1);
    made.total = totals[0];
    return made;
  }

  const HeadAttention& task_;
  const int size_;
  std::int32_t head_ = 0;
};

}  // namespace unpaced::test
