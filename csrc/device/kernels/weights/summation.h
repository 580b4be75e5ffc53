// In which order ggml's mat-vec kernels sum a row (mmvq.cu, mmvf.cu).
//
// A block of `n_warps` warps has one row. Thread (warp w, lane l) takes a fixed part of each block
// of weights it meets, so many threads sharing a block, and goes on by as many blocks as all
// threads hold at once. So 32 lanes meet `blocks` neighbouring blocks in what is called a step
// here: step s is warp s % n_warps's. Each thread has one sum. Then
// * quantised weights: the warps' sums of each lane are added in the order of the warps, and the
//   lanes' by an xor butterfly 16, 8, 4, 2, 1;
// * others: each warp's lanes by the butterfly, and these sums, zeros behind them, by another one.
//
// A warp of ours that goes through a row's steps in order with a sum for each of ggml's warps, or
// `n_warps` warps with a sum each, has the same bits. How many rows one of ggml's blocks has (more
// than one for short rows) changes nothing: a warp without steps adds +0 to a sum that is never -0.
#pragma once

#include <cstdint>

#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

inline constexpr int kLanes = 32;

// Where the lanes of a step are, in a format's blocks.
template <class Format>
struct Step {
  static constexpr int kBlocks = kLanes / Format::kThreads;
  static constexpr int kBytes = kBlocks * Format::kBytes;
  static constexpr int kValues = kBlocks * Format::kValues;

  UNPACED_BOTH static int block_of(int lane) { return lane / Format::kThreads; }
  UNPACED_BOTH static int part_of(int lane) { return lane % Format::kThreads; }
};

UNPACED_BOTH constexpr std::int32_t divided_up(std::int32_t a, std::int32_t b) {
  return (a + b - 1) / b;
}

// One stage of several butterflies at once. Of `n` values (even), a lane keeps the half that its
// bit in `offset` names, and gives the other half to the lane across: `given` says which value
// goes, `merged` adds what came. A butterfly's lanes hold the same sums pairwise after each stage,
// so nothing is lost, and a sum of two is the same either way round.
UNPACED_BOTH constexpr int kept_value(int lane, int offset, int n, int i) {
  return (lane & offset) != 0 ? i + n / 2 : i;
}
UNPACED_BOTH constexpr int given_value(int lane, int offset, int n, int i) {
  return (lane & offset) != 0 ? i : i + n / 2;
}
// After all stages: which of the `n` (a power of two up to 32) values a lane has.
UNPACED_BOTH constexpr int value_of_lane(int lane, int n) { return lane / (kLanes / n); }

}  // namespace unpaced::mat_vec
