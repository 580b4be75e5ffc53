// What a launch of products computes (mat_mat.h), and how ggml divides it.
//
// ggml has tiles of 128 rows and steps of 256 values. All steps of all tiles, in order, are divided
// evenly into parts, one a multiprocessor; where tiles alone keep nearly all of these busy, each is
// a part. A part's sums of one tile are made step after step; a tile's parts are added up later.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

inline constexpr std::int32_t kTileRows = 128;
inline constexpr std::int32_t kStepValues = 256;
inline constexpr std::int32_t kStagesMost = 4;
inline constexpr std::int32_t kWarps = 16;  // of a block of threads

// A launch's columns: of one matrix at a time, or of gate and up, whose sums are twice as many.
// More of them have several launches.
inline constexpr std::int32_t kLaunchColumns = 128;
inline constexpr std::int32_t kGatedLaunchColumns = 80;

struct Division {
  std::int32_t n_tiles = 0;
  std::int32_t n_steps = 0;  // of a tile
  std::int32_t n_parts = 0;

  // Part p has the steps first(p) to first(p + 1), counted over all tiles; some have none.
  [[nodiscard]] UNPACED_RECORD std::int32_t first(std::int32_t part) const {
    const auto n = static_cast<std::uint32_t>(n_tiles * n_steps);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(part) * n /
                                     static_cast<std::uint32_t>(n_parts));
  }
  [[nodiscard]] UNPACED_RECORD std::int32_t part_of(std::int32_t step) const {
    const auto n = static_cast<std::uint32_t>(n_tiles * n_steps);
    return static_cast<std::int32_t>(
        (static_cast<std::uint32_t>(step + 1) * static_cast<std::uint32_t>(n_parts) - 1) / n);
  }
};

[[nodiscard]] constexpr Division divide(std::int32_t n_rows, std::int32_t n_values,
                                        std::int32_t n_multiprocessors) {
  Division made;
  made.n_tiles = (n_rows + kTileRows - 1) / kTileRows;
  made.n_steps = n_values / kStepValues;
  const std::int32_t n_rounds = (made.n_tiles + n_multiprocessors - 1) / n_multiprocessors;
  const bool is_even = 100 * made.n_tiles / (n_multiprocessors * n_rounds) >= 90;
  made.n_parts = is_even ? made.n_tiles : n_multiprocessors;
  return made;
}

// The parts that have steps of a tile, in their order.
class PartsOfTile {
 public:
  UNPACED_RECORD PartsOfTile(const Division& division, std::int32_t tile)
      : division_(&division), first_step_(tile * division.n_steps) {
    first_ = division.part_of(first_step_);
    last_ = division.part_of(first_step_ + division.n_steps - 1);
    // Then a part has a step or none.
    has_gaps_ = division.n_tiles * division.n_steps < division.n_parts;
    n_ = has_gaps_ ? division.n_steps : last_ - first_ + 1;
  }
  [[nodiscard]] UNPACED_RECORD std::int32_t n() const { return n_; }
  [[nodiscard]] UNPACED_RECORD std::int32_t last() const { return last_; }
  [[nodiscard]] UNPACED_RECORD std::int32_t operator[](std::int32_t i) const {
    return has_gaps_ ? division_->part_of(first_step_ + i) : first_ + i;
  }

 private:
  const Division* division_;
  std::int32_t first_step_;
  std::int32_t first_, last_, n_;
  bool has_gaps_;
};

// A stage of shared memory has a step of a tile's rows, of two matrices where these are gate and
// up, and of the columns, half of which a warp has.
[[nodiscard]] constexpr std::int32_t stage_bytes(std::int32_t row_pitch, std::int32_t n_matrices,
                                                 std::int32_t n_warp_eights) {
  return n_matrices * kTileRows * row_pitch + 2 * n_warp_eights * BatchRecord::kBytes;
}
// What stages may take of a block's shared memory, by the code's compute capability: 8.6 and 8.9
// have less than 8.0, and more than that would be of no use.
[[nodiscard]] constexpr std::int32_t stages_bytes_max(std::int32_t code) {
  return (code == 86 || code == 89 ? 99 : 160) * 1024;
}
// As many as fit, but no more than cover the memory's delay. Two at least: of two matrices and most
// columns only compute 9.0 has room for these.
[[nodiscard]] constexpr std::int32_t n_stages(std::int32_t bytes, std::int32_t code) {
  const std::int32_t n = stages_bytes_max(code) / bytes;
  return n < 2 ? 2 : n < kStagesMost ? n : kStagesMost;
}
[[nodiscard]] constexpr std::int32_t warp_eights(std::int32_t n_columns) {
  return (record_eights(n_columns) + 1) / 2;
}
// Of n_columns so many have a launch, the last one as many or fewer: as few launches as can be, and
// all as large.
[[nodiscard]] constexpr std::int32_t launch_columns(std::int32_t n_columns, bool is_gated) {
  const std::int32_t most = is_gated ? kGatedLaunchColumns : kLaunchColumns;
  const std::int32_t n_launches = (n_columns + most - 1) / most;
  const std::int32_t n_eights = (record_eights(n_columns) + n_launches - 1) / n_launches;
  return n_eights * kRecordColumns < n_columns ? n_eights * kRecordColumns : n_columns;
}

struct TaskMatrix {
  const std::uint8_t* weights;
  const float* added;
  float* out;
  std::int64_t out_stride;
  std::int64_t added_stride;
  std::int32_t n_rows;
  std::int32_t row_bytes;
  std::int32_t row_pitch;   // of its format in shared memory
  std::int32_t first_tile;  // among all matrices'
  Division division;
};

struct Task {
  TaskMatrix matrices[kMatVecMatrices];
  std::int32_t n_streams;  // matrices one after the other; gate and up are one
  std::int32_t n_first;    // of these in the launch's first format, which come first
  std::int32_t n_columns;
  std::int32_t n_eights;
  std::int32_t record_step_bytes;  // between two steps' records, which other launches may share
  const std::uint8_t* records;
  float* sums;
  std::uint32_t* arrivals;
  GluKind glu;
  float glu_limit;
  bool next_is_ours;
};

}  // namespace unpaced::mat_mat
