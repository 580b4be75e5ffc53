// The attention kernel on the host: fibers are its threads, one block after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/kernels/attention/head_work.h"
#include "fibers.h"
#include "ggml_attention.h"

namespace unpaced::test {

// Something that depends on all of the values: the device's rounding is the device's.
inline void round_values(const float* values, Q8Block* to) {
  float largest = 0;
  float sum = 0;
  for (int i = 0; i < kQ8Values; ++i) {
    largest = std::max(largest, std::abs(values[i]));
    sum += values[i];
  }
  to->scale_and_sum = mat_vec::as_bits(largest + 0.5F * sum);
  for (int i = 0; i < kQ8Values; ++i) {
    to->values[i] = static_cast<std::int8_t>(
        largest == 0 ? 0 : std::lround(127 * static_cast<double>(values[i] / largest)));
  }
}

template <int kSize>
struct HostAttentionBlock {
  explicit HostAttentionBlock(Fibers& threads)
      : fibers(threads),
        all(attention::kThreads),
        warps(attention::kWarps, FiberBarrier(attention::kLanes)),
        lanes(attention::kThreads) {
    std::memset(static_cast<void*>(&shared), 0xff, sizeof shared);
  }

  Fibers& fibers;
  FiberBarrier all;
  std::vector<FiberBarrier> warps;
  std::vector<float> lanes;
  attention::Shared<kSize> shared;
  bool earlier_ended = false;
};

// Where a head's parts meet.
struct HostParts {
  std::vector<float> sums;
  std::vector<PartTop> tops;
  int n_left = 0;
};

template <int kSize>
class HostAttentionPlace {
 public:
  using Words16 = attention::Words16;

  HostAttentionPlace(HostAttentionBlock<kSize>& block, HostParts& parts, int part, int n_parts,
                     int head, int n_sharing, int thread)
      : block_(block),
        parts_(parts),
        part_(part),
        n_parts_(n_parts),
        head_(head),
        n_sharing_(n_sharing),
        thread_(thread) {}

  int thread() const { return thread_; }
  int part() const { return part_; }
  int n_parts() const { return n_parts_; }
  int head() const { return head_; }
  int shared_head() const { return head_ / n_sharing_; }
  void let_later_kernels_start(bool) const {}
  void await_earlier_kernels() const { block_.earlier_ended = true; }
  void end_writes(bool) const {}
  void meet_block() const { block_.all.wait(block_.fibers); }

  void prefetch(const std::uint8_t*) const {}

  Words16 load(const std::uint8_t* from) const {
    REQUIRE(block_.earlier_ended && reinterpret_cast<std::uintptr_t>(from) % 16 == 0);
    Words16 words;
    std::memcpy(&words, from, sizeof words);
    return words;
  }
  float shuffle(float value, int lane) const {
    const int first = thread_ / attention::kLanes * attention::kLanes;
    block_.lanes[static_cast<std::size_t>(thread_)] = value;
    meet_warp();
    const float got = block_.lanes[static_cast<std::size_t>(first + lane)];
    meet_warp();
    return got;
  }
  float shuffle_xor(float value, int mask) const {
    return shuffle(value, (thread_ % attention::kLanes) ^ mask);
  }
  std::uint32_t ballot(bool value) const {
    std::uint32_t all = 0;
    for (int i = 0; i < attention::kLanes; ++i) {
      all |= static_cast<std::uint32_t>(shuffle(value ? 1.0F : 0.0F, i)) << i;
    }
    return all;
  }
  float larger(float a, float b) const { return std::fmax(a, b); }
  float power(float x) const { return fast_exp(x); }
  float tanh(float x) const { return std::tanh(x); }
  float quotient(float a, float b) const { return a / b; }

  void round(float value, const HeadAttention& task, int number) const {
    float values[kQ8Values];
    for (int i = 0; i < kQ8Values; ++i) values[i] = shuffle(value, i);
    if (thread_ % attention::kLanes == 0) round_values(values, task.rounded + number);
  }

  template <int>
  attention::Shared<kSize>& shared() const {
    return block_.shared;
  }
  void await_first_part() const {}
  void leave_sum(int value, float sum) const {
    parts_.sums[static_cast<std::size_t>(part_ * kSize + value)] = sum;
  }
  void leave_top(const PartTop& top) const { parts_.tops[static_cast<std::size_t>(part_)] = top; }
  bool is_last_part() const {
    meet_block();
    if (thread_ == 0) ++parts_.n_left;
    meet_block();
    return parts_.n_left == n_parts_;
  }
  attention::PartsPlace parts_left() const { return {parts_.sums.data(), parts_.tops.data()}; }

 private:
  void meet_warp() const {
    block_.warps[static_cast<std::size_t>(thread_ / attention::kLanes)].wait(block_.fibers);
  }

  HostAttentionBlock<kSize>& block_;
  HostParts& parts_;
  const int part_;
  const int n_parts_;
  const int head_;
  const int n_sharing_;
  const int thread_;
};

template <int kSize, bool kCapped>
void attend_on_host(const HeadAttention& task) {
  static Fibers fibers(attention::kThreads);
  const int n_parts =
      std::min(task.n_parts, (task.n_cells + kAttentionCells - 1) / kAttentionCells);
  for (int head = 0; head < task.n_heads; ++head) {
    HostParts parts{.sums = std::vector<float>(static_cast<std::size_t>(n_parts * kSize)),
                    .tops = std::vector<PartTop>(static_cast<std::size_t>(n_parts))};
    // From any one on: no launch promises an order.
    for (int i = 0; i < n_parts; ++i) {
      const int part = (i + head) % n_parts;
      HostAttentionBlock<kSize> block(fibers);
      fibers.run([&](int thread) {
        using Place = HostAttentionPlace<kSize>;
        Place place(block, parts, part, n_parts, head, task.n_sharing, thread);
        attention::HeadWork<kSize, kCapped, Place>(task, place).run();
      });
    }
  }
}

}  // namespace unpaced::test
