// The work of a block of threads: its teams' chunks of rows, from fetching weights to storing sums.
//
// A team is one warp, with a sum for each of ggml's warps, or as many warps as ggml has, with one
// sum each (summation.h); or one warp whose lanes do four of ggml's threads' work (lane_quads.h).
// Each team has a ring of its own in shared memory: weights arrive while
// earlier ones are multiplied. `Place` is what differs between the device and the host's tests:
// who a thread is, where shared memory lies, how threads meet, how weights are fetched.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/block_inputs.h"
#include "device/kernels/mat_vec/block/chunk_rows.h"
#include "device/kernels/mat_vec/block/producer.h"
#include "device/kernels/mat_vec/block/row_output.h"
#include "device/kernels/mat_vec/block/shape.h"
#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/row_totals.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

template <class Shape, class Place>
class BlockWork {
  using Format = typename Shape::Format;
  using Input = typename Format::Input;
  using Steps = Step<Format>;
  using Rows = ChunkRows<Format, Shape::kRows>;
  using Totals = RowTotals<Shape, Place>;
  using Sums = typename Totals::Sums;
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kWarps = Shape::kWarps;
  static constexpr int kTeam = Shape::kTeam, kSums = Shape::kSums, kHeld = Shape::kHeld;
  static constexpr bool kQuads = kIsQuad<Format>;
  // Steps that have a sum each of a lane's.
  static constexpr int kStepSums = kQuads ? 1 : kSums;
  static constexpr bool kProducer = Shape::kProducer && Place::kHasProducer;

 public:
  UNPACED_BOTH BlockWork(const Task& task, Place& place)
      : task_(task),
        rows_(task),
        inputs_(task, place),
        place_(place),
        next_(task, first_chunk(place)) {
    lane_ = place.thread() % kLanes;
    warp_ = place.thread() / kLanes % kTeam;
    team_ = place.thread() / kLanes / kTeam;
    block_ = Steps::block_of(lane_);
    part_ = Steps::part_of(lane_);
    ring_ = place.shared() + task.rings_at + team_ * task.n_stages * kRows * task.slot_bytes;
    exchanged_ = reinterpret_cast<float*>(place.shared() + task.sums_at) +
                 team_ * kWarps * kRows * kColumns * kLanes;
    n_teams_ = place.n_blocks() * (place.n_threads() / kLanes / kTeam);
  }

  UNPACED_BOTH void run() {
    place_.prepare_ring(team_, task_.n_stages, kRows, kTeam);
    if constexpr (kProducer) {
      if (place_.is_producer()) return Producer<Shape, Place>(task_, place_).run();
    }
    const bool early = !task_.waits_for_experts;
    Chunks chunks = next_;
    if (!kProducer && early) fetch_first_stages();
    if (early) place_.let_later_kernels_start(task_.next_is_ours);
    place_.await_earlier_kernels();
    // In this order: who begins later has no need to wait for which experts they are.
    if (!early) place_.let_later_kernels_start(task_.next_is_ours);
    if (!kProducer && !early) fetch_first_stages();
    Input held[kHeld > 0 ? kHeld : 1];
    if constexpr (kHeld > 0) {
      UNPACED_UNROLL
      for (int s = 0; s < kHeld; ++s) held[s] = inputs_.gathered(0, s);
    } else {
      inputs_.store();
      place_.meet_block();
    }
    for (; chunks.is_one(task_); chunks.advance(task_, n_teams_)) work_on(chunks, held);
    place_.end_writes(task_.next_is_ours);
  }

 private:
  UNPACED_BOTH static std::int32_t first_chunk(const Place& place) {
    return place.thread() / kLanes / kTeam * place.n_blocks() + place.block();
  }

  // --- weights -------------------------------------------------------------------------------

  UNPACED_BOTH std::uint8_t* slot_of(std::int32_t stage, int r) const {
    return ring_ + (stage * kRows + r) * task_.slot_bytes;
  }

  // Fetches the next stage: slices follow one another, then the team's next chunk's. A lane knows
  // where one of the chunk's rows goes on.
  UNPACED_BOTH void fetch_next() {
    if (!next_.is_one(task_)) return;
    if (next_slice_ == 0) next_row_ = rows_.begin_of(next_, lane_ % kRows);
    place_.template fetch<kRows, kTeam, Rows::kIsAligned>(
        team_, warp_, lane_, next_stage_, rows_.slice_bytes(next_slice_), next_row_,
        [&](int r) { return slot_of(next_stage_, r); });
    next_row_ += task_.slice_steps * Steps::kBytes;
    if (++next_stage_ == task_.n_stages) next_stage_ = 0;
    if (++next_slice_ == task_.n_slices) {
      next_slice_ = 0;
      next_.advance(task_, n_teams_);
    }
  }

  UNPACED_BOTH void fetch_first_stages() {
    for (std::int32_t i = 0; i < task_.n_stages; ++i) fetch_next();
  }

  // --- sums ----------------------------------------------------------------------------------

  // One step of all rows and columns. `rows` point to the step's bytes.
  template <class InputOf>
  UNPACED_BOTH void add_step(const std::uint8_t* const (&rows)[kRows], bool meets, int w,
                             InputOf input_of, Sums& sums) const {
    typename Format::Weights weights[kRows];
    // In shared memory there is something behind a row, in the card's perhaps nothing.
    const int block = Place::kReadsInPlace && !meets ? 0 : block_;
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r)
      weights[r] = Format::load(rows[r] + block * Format::kBytes, part_);
    UNPACED_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const Input input = input_of(c);
      UNPACED_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if constexpr (kQuads) {
          UNPACED_UNROLL
          for (int k = 0; k < kQuad; ++k) {
            const float before = sums.of[r][c][k];
            const float after = Format::Single::add(weights[r].of[k], input.of[k], before);
            sums.of[r][c][k] = meets ? after : before;
          }
        } else {
          const float before = sums.of[r][c][w];
          const float after = Format::add(weights[r], input, before);
          sums.of[r][c][w] = meets ? after : before;
        }
      }
    }
  }

  // Whether this lane has a block in a step of the row.
  UNPACED_BOTH bool meets(std::int32_t step) const {
    return step * Steps::kBlocks + block_ < task_.n_blocks;
  }

  UNPACED_BOTH void add_held(const std::uint8_t* const (&rows)[kRows],
                             const Input (&held)[kHeld > 0 ? kHeld : 1], Sums& sums) const {
    UNPACED_UNROLL
    for (int s = 0; s < kHeld; ++s) {
      if (s >= task_.n_steps) break;
      const std::uint8_t* at[kRows];
      UNPACED_UNROLL
      for (int r = 0; r < kRows; ++r) at[r] = rows[r] + s * Steps::kBytes;
      add_step(at, meets(s), s % kStepSums, [&](int) -> const Input& { return held[s]; }, sums);
    }
  }

  // The steps of a slice, one for each of ggml's warps at a time: this warp's own, or all of them.
  UNPACED_BOTH void add_stored(const std::uint8_t* const (&rows)[kRows], std::int32_t first,
                               std::int32_t vector, Sums& sums) const {
    const std::int32_t left = task_.n_steps - first;
    const std::int32_t n = left < task_.slice_steps ? left : task_.slice_steps;
    for (std::int32_t group = 0; group < n; group += kTeam * kStepSums) {
      UNPACED_UNROLL
      for (int w = 0; w < kStepSums; ++w) {
        const std::int32_t s = group + (kTeam > 1 ? warp_ : w);
        if (s >= n) break;
        const std::uint8_t* at[kRows];
        UNPACED_UNROLL
        for (int r = 0; r < kRows; ++r) at[r] = rows[r] + s * Steps::kBytes;
        add_step(
            at, meets(first + s), w, [&](int c) { return inputs_.load(vector + c, first + s); },
            sums);
      }
    }
  }

  // --- a chunk -------------------------------------------------------------------------------

  UNPACED_BOTH void work_on(const Chunks& chunk, const Input (&held)[kHeld > 0 ? kHeld : 1]) {
    const RowOutput output = output_of(chunk);
    const float added = output.added != nullptr ? *output.added : 0.0F;
    Sums sums = {};
    constexpr bool kInSlots = Rows::kIsAligned && !Place::kReadsInPlace;
    const std::uint8_t* row_begins[kRows];
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) row_begins[r] = kInSlots ? nullptr : rows_.begin_of(chunk, r);
    for (std::int32_t slice = 0; slice < task_.n_slices; ++slice) {
      place_.template await_stage<kTeam>(team_, stage_, parity_);
      const std::int32_t first = slice * task_.slice_steps;
      const std::uint8_t* rows[kRows];
      UNPACED_UNROLL
      for (int r = 0; r < kRows; ++r)
        rows[r] = kInSlots
                      ? slot_of(stage_, r)
                      : place_.fetched(row_begins[r], first * Steps::kBytes, slot_of(stage_, r));
      if constexpr (kHeld > 0)
        add_held(rows, held, sums);
      else
        add_stored(rows, first, rows_.has_experts() && task_.n_inputs > 1 ? chunk.part() : 0, sums);
      place_.template meet_team<kTeam>(team_);
      if constexpr (!kProducer)
        fetch_next();
      else if (warp_ == 0 && lane_ == 0)
        place_.free_stage(team_, stage_);
      if (++stage_ == task_.n_stages) stage_ = 0, parity_ ^= 1;
    }
    store(output, added, Totals(place_, team_, warp_, lane_, exchanged_).of(sums));
  }

  // --- outputs -------------------------------------------------------------------------------

  // What this lane stores, or hands to the lane that does.
  UNPACED_BOTH RowOutput output_of(const Chunks& chunk) const {
    const int value = value_of_lane(lane_, Shape::kShare);
    const int r = Totals::share_row(warp_) + value / Shape::kShareColumns;
    const int column = Totals::share_column(warp_) + value % Shape::kShareColumns;
    return mat_vec::output_of<kColumns>(task_, rows_, chunk, r, column,
                                        lane_ % (kLanes / Shape::kShare) == 0);
  }

  UNPACED_BOTH void store(const RowOutput& output, float added, float total) {
    if (task_.end != MatVecEnd::kPlain && (task_.adds_zero || output.added != nullptr))
      total = sum(total, added);
    if constexpr (kRows > 1) {
      if (rows_.paired()) {
        // Up and gate are neighbouring rows: so many values apart.
        constexpr int kAcross = kLanes / Shape::kShare * Shape::kShareColumns;
        const float gate = place_.shuffle_xor(total, kAcross);
        total = place_.glu(total, gate, task_);
      }
    }
    if (output.out != nullptr) *output.out = total;
  }

  const Task& task_;
  const Rows rows_;
  BlockInputs<Shape, Place> inputs_;
  Place& place_;
  int lane_, warp_, team_, block_, part_;
  std::uint8_t* ring_;
  float* exchanged_;  // the team's sums; only a wide team and one of quads have such memory
  std::int32_t n_teams_;
  const std::uint8_t* next_row_ = nullptr;
  Chunks next_;
  std::int32_t next_slice_ = 0;
  std::int32_t next_stage_ = 0;
  std::int32_t stage_ = 0;    // the one that is read next
  std::uint32_t parity_ = 0;  // of its barrier's phase
};

}  // namespace unpaced::mat_vec
