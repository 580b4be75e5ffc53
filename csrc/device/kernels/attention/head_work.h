// The work of a block of threads of the attention kernel: a part of the cells of one query's head.
//
// ggml's order. A block has four warps, each with 32 cells of every n_parts-th 128. In a warp eight
// lanes have a row: 16 bytes of each 128. A lane's products are added in order, then the eight
// lanes' by a butterfly. Scores become powers of what they are below the warp's highest one so far;
// each eighth lane's group adds up the values of every fourth cell. Then the warps' and groups'
// sums are added one after the other, and in the end the parts'.
//
// Cells that the mask hides are not read. In ggml's kernel their power is zero, and zero times a
// value is added, which changes no bit as long as the value is finite. (A zero's sign does not
// count: sums begin with a positive one.)
//
// `Place` is what differs between the device and the host's tests.
#pragma once

#include <cstdint>

#include "device/kernels/attention/part_sum.h"
#include "device/kernels/attention/warp_order.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::attention {

template <int kSize, bool kCapped, class Place>
class HeadWork {
  static constexpr int kPieces = kSize / kPieceValues;  // of a row, 16 bytes a lane
  static constexpr int kHeld = kSize / kRowLanes;       // a row's values that a lane has

 public:
  UNPACED_BOTH HeadWork(const HeadAttention& task, Place& place)
      : task_(task), place_(place), lane_(place.thread() % kLanes), warp_(place.thread() / kLanes) {
    keys_ = task.keys.data + place.shared_head() * task.keys.head_stride;
    values_ = task.values.data + place.shared_head() * task.values.head_stride;
    UNPACED_UNROLL
    for (int i = 0; i < kHeld; ++i) sums_[i] = 0.0F;
  }

  UNPACED_BOTH void run() {
    place_.let_later_kernels_start(task_.next_is_ours);
    // The mask was there before the step.
    const std::int32_t step = task_.n_parts * kAttentionCells;
    std::int32_t cell = place_.part() * kAttentionCells + warp_ * kLanes;
    std::uint32_t hidden = task_.mask[cell + lane_];
    prefetch(cell, hidden);
    std::uint32_t shown = place_.ballot(hidden != kHidden);
    place_.await_earlier_kernels();
    Words16 rows[8][kPieces];
    load_keys(cell, shown, rows);
    load_query();
    place_.await_first_part();
    scale_query();
    for (;;) {
      const bool is_last = cell + step >= task_.n_cells;
      const std::uint32_t next_hidden = is_last ? kHidden : task_.mask[cell + step + lane_];
      if (shown != 0) take(cell, hidden, shown, rows);
      if (is_last) break;
      cell += step;
      hidden = next_hidden;
      shown = place_.ballot(hidden != kHidden);
      load_keys(cell, shown, rows);
    }
    if (task_.sinks != nullptr && place_.part() == 0 && warp_ == 0) take_sink();
    leave();
  }

 private:
  UNPACED_BOTH int group() const { return lane_ / kRowLanes; }
  UNPACED_BOTH int place_in_row() const { return lane_ % kRowLanes; }

  // The lane's cell's rows into the card's cache, which is where earlier kernels write: nothing is
  // read yet.
  UNPACED_BOTH void prefetch(std::int32_t cell, std::uint32_t hidden) const {
    if (hidden == kHidden) return;
    const std::int64_t row = cell + lane_;
    UNPACED_UNROLL
    for (int i = 0; i < 2 * kSize; i += kFetchedBytes) {
      place_.prefetch(keys_ + row * task_.keys.stride + i);
      place_.prefetch(values_ + row * task_.values.stride + i);
    }
  }

  UNPACED_BOTH void load_query() {
    const auto* query = reinterpret_cast<const std::uint8_t*>(
        task_.queries + place_.head() * task_.query_stride + place_in_row() * 8);
    UNPACED_UNROLL
    for (int i = 0; i < kHeld; i += 4) {
      const Words16 four = place_.load(query + 4 * (i / 8 * kPieceValues + i % 8));
      UNPACED_UNROLL
      for (int k = 0; k < 4; ++k) query_[i + k] = mat_vec::as_float(four.words[k]);
    }
  }
  UNPACED_BOTH void scale_query() {
    UNPACED_UNROLL
    for (int i = 0; i < kHeld; ++i) query_[i] = mat_vec::product(query_[i], task_.scale);
  }

  // The lane's pieces of eight rows that lie `stride` apart, of the cells that are shown: 1, 2, 4 …
  // in `shown`, `distance` digits apart.
  UNPACED_BOTH void load_rows(const std::uint8_t* first, std::int64_t stride, std::uint32_t shown,
                              int distance, Words16 (&rows)[8][kPieces]) const {
    const std::uint8_t* from = first + place_in_row() * static_cast<int>(sizeof(Words16));
    UNPACED_UNROLL
    for (int i = 0; i < 8; ++i) {
      UNPACED_UNROLL
      for (int k = 0; k < kPieces; ++k) {
        rows[i][k] = {};
        if ((shown >> (i * distance) & 1U) != 0) rows[i][k] = place_.load(from + k * kPieceBytes);
      }
      from += stride;
    }
  }

  UNPACED_BOTH void load_keys(std::int32_t cell, std::uint32_t shown,
                              Words16 (&rows)[8][kPieces]) const {
    const int first = group() * kRowLanes;
    load_rows(keys_ + (cell + first) * task_.keys.stride, task_.keys.stride, shown >> first, 1,
              rows);
  }
  UNPACED_BOTH void load_values(std::int32_t cell, std::uint32_t shown,
                                Words16 (&rows)[8][kPieces]) const {
    const int first = group();
    load_rows(values_ + (cell + first) * task_.values.stride, kGroups * task_.values.stride,
              shown >> first, kGroups, rows);
  }

  UNPACED_BOTH float dot(const Words16 (&pieces)[kPieces]) const {
    float dot = 0.0F;
    UNPACED_UNROLL
    for (int i = 0; i < kHeld / 2; ++i) {
      float low;
      float high;
      two_values(pieces[i / 4].words[i % 4], low, high);
      dot = mat_vec::fused(low, query_[2 * i], dot);
      dot = mat_vec::fused(high, query_[2 * i + 1], dot);
    }
    return dot;
  }

  // Of eight rows' sums over eight lanes the lane's own row's: each step halves the rows that a
  // lane goes on with. The sums are a butterfly's.
  UNPACED_BOTH float own_score(float (&dots)[kRowLanes]) const {
    UNPACED_UNROLL
    for (int half = kRowLanes / 2; half > 0; half /= 2) {
      const bool upper = (lane_ & half) != 0;
      UNPACED_UNROLL
      for (int i = 0; i < half; ++i) {
        const float sent = upper ? dots[i] : dots[i + half];
        const float kept = upper ? dots[i + half] : dots[i];
        dots[i] = mat_vec::sum(kept, place_.shuffle_xor(sent, half));
      }
    }
    return dots[0];
  }

  UNPACED_BOTH float highest(float score) const {
    UNPACED_UNROLL
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      score = place_.larger(score, place_.shuffle_xor(score, distance));
    }
    return score;
  }

  // The warp's 32 cells from this one on, whose keys are in `rows`.
  UNPACED_BOTH void take(std::int32_t cell, std::uint32_t hidden, std::uint32_t shown,
                         Words16 (&rows)[8][kPieces]) {
    float dots[kRowLanes];
    UNPACED_UNROLL
    for (int i = 0; i < kRowLanes; ++i) dots[i] = dot(rows[i]);
    load_values(cell, shown, rows);
    float score = own_score(dots);
    if constexpr (kCapped) score = mat_vec::product(task_.cap, place_.tanh(score));
    score = mat_vec::sum(score, mat_vec::half_value(hidden));
    const float top = place_.larger(top_, highest(mat_vec::sum(score, kOffset)));
    const float rescale = place_.power(mat_vec::sum(top_, -top));
    const float power = place_.power(mat_vec::sum(score, -top));
    top_ = top;
    total_ = mat_vec::fused(total_, rescale, power);
    UNPACED_UNROLL
    for (int i = 0; i < kTurns; ++i) {
      add(rows[i], place_.shuffle(power, i * kGroups + group()), i == 0, rescale);
    }
  }

  // power * row. The first one's products are rounded, as ggml's compiler has it: what is there is
  // rescaled in the same operation.
  UNPACED_BOTH void add(const Words16 (&row)[kPieces], float power, bool first, float rescale) {
    UNPACED_UNROLL
    for (int i = 0; i < kHeld / 2; ++i) {
      float pair[2];
      two_values(row[i / 4].words[i % 4], pair[0], pair[1]);
      UNPACED_UNROLL
      for (int k = 0; k < 2; ++k) {
        float& sum = sums_[2 * i + k];
        sum = first ? mat_vec::fused(sum, rescale, mat_vec::product(pair[k], power))
                    : mat_vec::fused(pair[k], power, sum);
      }
    }
  }

  UNPACED_BOTH void take_sink() {
    const float sink = task_.sinks[place_.head()];
    const float top = place_.larger(sink, top_);
    const float rescale = place_.power(mat_vec::sum(top_, -top));
    top_ = top;
    const float power = lane_ == 0 ? place_.power(mat_vec::sum(sink, -top)) : 0.0F;
    total_ = mat_vec::fused(total_, rescale, power);
    UNPACED_UNROLL
    for (int i = 0; i < kHeld; ++i) sums_[i] = mat_vec::product(sums_[i], rescale);
  }

  UNPACED_BOTH void leave() {
    Shared<kSize>& shared = place_.template shared<kSize>();
    UNPACED_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      shared.sums[warp_][group()][value_of(place_in_row(), i)] = sums_[i];
    }
    shared.powers[warp_][lane_] = total_;
    if (lane_ == 0) shared.tops[warp_] = top_;
    place_.meet_block();
    PartSum<kSize, Place>(task_, place_, shared).leave();
  }

  const HeadAttention& task_;
  Place& place_;
  const int lane_;
  const int warp_;
  const std::uint8_t* keys_;
  const std::uint8_t* values_;
  float query_[kHeld];
  float sums_[kHeld];  // of the values, of the group's cells
  float top_ = kLowest;
  float total_ = 0.0F;  // of the powers, of the lane's cells
};

}  // namespace unpaced::attention
