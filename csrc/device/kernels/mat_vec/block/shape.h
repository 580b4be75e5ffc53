// A mat-vec kernel's build as a type: what its teams of warps hold.
#pragma once

#include "device/kernels/weights/lane_quads.h"

namespace unpaced::mat_vec {

// kProducer: a warp of each block does nothing but fetch, where it can (Place::kHasProducer). With
// one column, fetching takes a warp as many instructions as it multiplies short rows with. kHeld:
// steps whose inputs a lane keeps in registers (one column; a row's slice is then the whole row);
// 0: inputs are read from shared memory.
template <class Format_, int kWarps_, int kRows_, int kColumns_, bool kWide_, int kHeld_,
          bool kProducer_ = false>
struct Shape {
  using Format = Format_;
  static constexpr int kWarps = kWarps_;      // ggml's
  static constexpr int kRows = kRows_;        // of a chunk
  static constexpr int kColumns = kColumns_;  // a power of two
  static constexpr bool kWide = kWide_;       // a team has kWarps warps
  static constexpr int kTeam = kWide ? kWarps : 1;
  static constexpr int kSums = kWide ? 1 : kWarps;  // a row and column, a lane; of quads four, too
  static constexpr int kHeld = kHeld_;
  static constexpr bool kProducer = kProducer_;
  // On a multiprocessor at least: so many share its registers.
  static constexpr int kBlocks = !kWide && kColumns * kSums > 8 ? 1 : 2;
  // After the last step a warp brings this many sums to their ends: all of them, or its share of
  // the team's: two rows, and the columns that its place among the pairs' warps names.
  static constexpr int kShareRows = kWide ? 2 : kRows;
  static constexpr int kShareColumns = kWide ? kRows * kColumns / kWarps / 2 : kColumns;
  static constexpr int kShare = kShareRows * kShareColumns;
  // Of weights that are not quantised, ggml's warps come to an end each by itself: so many at most.
  static constexpr int kWarpsMax = 8;
  static_assert(!kWide || (kRows % 2 == 0 && kRows * kColumns % (2 * kWarps) == 0));
  static_assert(!kIsQuad<Format> || (kWarps == kQuad && !kWide));
  static_assert(kHeld == 0 || (kColumns == 1 && !kWide));
};

}  // namespace unpaced::mat_vec
