// What ggml makes of its threads' sums of a chunk of rows (summation.h): a total for each row and
// column, which is at the lanes that value_of_lane() names.
#pragma once

#include <cstdint>

#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// `Shape` and `Place` as BlockWork has them (product.h).
template <class Shape, class Place>
class RowTotals {
  using Format = typename Shape::Format;
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kWarps = Shape::kWarps;
  static constexpr int kTeam = Shape::kTeam, kSums = Shape::kSums;

 public:
  struct Sums {
    float of[kRows][kColumns][kSums];
  };

  // exchanged: memory of the team, for the sums of all its warps where it has several, or of all
  // its lanes where they are quads.
  UNPACED_BOTH RowTotals(Place& place, int team, int warp, int lane, float* exchanged)
      : place_(place), team_(team), warp_(warp), lane_(lane), exchanged_(exchanged) {}

  UNPACED_BOTH float of(const Sums& sums) const {
    if constexpr (!Format::kIsQuantised) {
      return total_of_warps(sums);
    } else if constexpr (kIsQuad<Format>) {
      return total_of_quads(sums);
    } else {
      float share[Shape::kShare];
      if constexpr (kTeam > 1)
        exchange(sums, share);
      else
        add_warps(sums, share);
      return add_lanes(share);
    }
  }

  // The first row and column of a warp's share.
  UNPACED_BOTH static int share_row(int warp) {
    return kTeam > 1 ? 2 * (warp / (kColumns / Shape::kShareColumns)) : 0;
  }
  UNPACED_BOTH static int share_column(int warp) {
    return kTeam > 1 ? warp % (kColumns / Shape::kShareColumns) * Shape::kShareColumns : 0;
  }

 private:
  // Each warp's lanes first, then the warps as if they were the first lanes of one.
  UNPACED_BOTH float total_of_warps(const Sums& sums) const {
    static_assert(Format::kIsQuantised || (kTeam == 1 && kColumns == 1));
    constexpr int kMost = Shape::kWarpsMax;
    float share[kRows * kMost];
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) {
      UNPACED_UNROLL
      for (int w = 0; w < kMost; ++w) {
        share[r * kMost + w] = 0;
        if (w < kWarps) share[r * kMost + w] = Format::finished(sums.of[r][0][w < kWarps ? w : 0]);
      }
    }
    float total = add_lanes(share);
    constexpr int kLanesEach = kLanes / (kRows * kMost);
    if constexpr (kWarps == 1) return place_.first_of(total, kMost * kLanesEach);
    total = sum(total, 0);  // the lanes without a warp
    UNPACED_UNROLL
    for (int offset = kMost / 2; offset > 0; offset /= 2)
      total = sum(total, place_.shuffle_xor(total, offset * kLanesEach));
    return total;
  }

  // The sums of ggml's warps, in their order.
  UNPACED_BOTH void add_warps(const Sums& sums, float (&share)[Shape::kShare]) const {
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) {
      UNPACED_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        float total = sums.of[r][c][0];
        UNPACED_UNROLL
        for (int w = 1; w < kSums; ++w) total = sum(total, sums.of[r][c][w]);
        share[r * kColumns + c] = total;
      }
    }
  }

  // As add_warps, where each of the team's warps has one of the sums.
  UNPACED_BOTH void exchange(const Sums& sums, float (&share)[Shape::kShare]) const {
    const auto at = [&](int warp, int r, int c) -> float& {
      return exchanged_[((warp * kRows + r) * kColumns + c) * kLanes + lane_];
    };
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) {
      UNPACED_UNROLL
      for (int c = 0; c < kColumns; ++c) at(warp_, r, c) = sums.of[r][c][0];
    }
    place_.template meet_team<kTeam>(team_);
    const int row = share_row(warp_), column = share_column(warp_);
    UNPACED_UNROLL
    for (int r = 0; r < Shape::kShareRows; ++r) {
      UNPACED_UNROLL
      for (int c = 0; c < Shape::kShareColumns; ++c) {
        float total = at(0, row + r, column + c);
        UNPACED_UNROLL
        for (int w = 1; w < kWarps; ++w) total = sum(total, at(w, row + r, column + c));
        share[r * Shape::kShareColumns + c] = total;
      }
    }
  }

  // Lane p has four sums of a value, k = 0 ... 3: those of ggml's warp p / 8, lanes 4 * (p % 8) +
  // k. The n values' 4n floats are numbered, four a value, and a lane takes every warp's of n of
  // them, from (p / 8) * n on, by way of shared memory. Then ggml's butterfly: its offsets 16, 8
  // and 4 are 4, 2 and 1 here, and 2 and 1 are among the k, which by then are at other lanes if n
  // is small.
  UNPACED_BOTH float total_of_quads(const Sums& sums) const {
    constexpr int n = kRows * kColumns;
    static_assert(n == 1 || n == 2 || n % 4 == 0);
    struct alignas(16) Four {
      float of[kQuad];
    };
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) {
      UNPACED_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        Four four;
        UNPACED_UNROLL
        for (int k = 0; k < kQuad; ++k) four.of[k] = sums.of[r][c][k];
        reinterpret_cast<Four*>(exchanged_)[(r * kColumns + c) * kLanes + lane_] = four;
      }
    }
    place_.template meet_team<kTeam>(team_);
    constexpr int kAtOnce = n < kQuad ? n : kQuad;
    struct alignas(4 * kAtOnce) Several {
      float of[kAtOnce];
    };
    float share[n];
    UNPACED_UNROLL
    for (int i = 0; i < n; i += kAtOnce) {
      const int number = lane_ / 8 * n + i;
      const int from = (number / kQuad * kLanes + lane_ % 8) * kQuad + number % kQuad;
      const auto* of_first_warp = reinterpret_cast<const Several*>(exchanged_ + from);
      UNPACED_UNROLL
      for (int j = 0; j < kAtOnce; ++j) share[i + j] = of_first_warp->of[j];
      UNPACED_UNROLL
      for (int w = 1; w < kWarps; ++w) {
        const Several several =
            *reinterpret_cast<const Several*>(exchanged_ + from + 8 * w * kQuad);
        UNPACED_UNROLL
        for (int j = 0; j < kAtOnce; ++j) share[i + j] = sum(share[i + j], several.of[j]);
      }
    }
    add_lanes(share, kLanes / 2 / kQuad);
    constexpr int kLeft = n > 8 ? n / 8 : 1;
    if constexpr (kLeft == kQuad) {
      share[0] = sum(share[0], share[2]);
      share[1] = sum(share[1], share[3]);
    } else {
      UNPACED_UNROLL
      for (int i = 0; i < kLeft; ++i)
        share[i] = sum(share[i], place_.shuffle_xor(share[i], 16 / n));
    }
    if constexpr (kLeft > 1)
      return sum(share[0], share[1]);
    else
      return sum(share[0], place_.shuffle_xor(share[0], 8 / n));
  }

  // The lanes' sums, by the butterfly from `first` on; a lane has the one that value_of_lane()
  // names.
  template <int kShare>
  UNPACED_BOTH float add_lanes(float (&share)[kShare], int first = kLanes / 2) const {
    int n = kShare;
    UNPACED_UNROLL
    for (int offset = first; offset > 0; offset /= 2) {
      if (n > 1) {
        UNPACED_UNROLL
        for (int i = 0; i < kShare / 2; ++i) {
          if (i >= n / 2) break;
          const bool upper = (lane_ & offset) != 0;
          const float kept = upper ? share[i + n / 2] : share[i];
          const float given = upper ? share[i] : share[i + n / 2];
          share[i] = sum(kept, place_.shuffle_xor(given, offset));
        }
        n /= 2;
      } else {
        share[0] = sum(share[0], place_.shuffle_xor(share[0], offset));
      }
    }
    return share[0];
  }

  Place& place_;
  int team_, warp_, lane_;
  float* exchanged_;
};

}  // namespace unpaced::mat_vec
