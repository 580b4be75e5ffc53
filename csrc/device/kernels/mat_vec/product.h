// The work of a block of threads: its teams' chunks of rows, from fetching weights to storing sums.
//
// A team is one warp, with a sum for each of ggml's warps, or as many warps as ggml has, with one
// sum each (summation.h); or one warp whose lanes do four of ggml's threads' work (lane_quads.h).
// Each team has a ring of its own in shared memory: weights arrive while
// earlier ones are multiplied. `Place` is what differs between the device and the host's tests:
// who a thread is, where shared memory lies, how threads meet, how weights are fetched.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/shape.h"
#include "device/kernels/mat_vec/task.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/row_totals.h"
#include "device/kernels/weights/stored_inputs.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

template <class Shape, class Place>
class BlockWork {
  using Format = typename Shape::Format;
  using Input = typename Format::Input;
  using Stored = StoredInputs<Format>;
  using Steps = Step<Format>;
  using Totals = RowTotals<Shape, Place>;
  using Sums = typename Totals::Sums;
  static constexpr int kRows = Shape::kRows, kColumns = Shape::kColumns, kWarps = Shape::kWarps;
  static constexpr int kTeam = Shape::kTeam, kSums = Shape::kSums, kHeld = Shape::kHeld;
  static constexpr bool kQuads = kIsQuad<Format>;
  // Steps that have a sum each of a lane's.
  static constexpr int kStepSums = kQuads ? 1 : kSums;

 public:
  UNPACED_BOTH BlockWork(const Task& task, Place& place) : task_(task), place_(place) {
    lane_ = place.thread() % kLanes;
    warp_ = place.thread() / kLanes % kTeam;
    team_ = place.thread() / kLanes / kTeam;
    block_ = Steps::block_of(lane_);
    part_ = Steps::part_of(lane_);
    ring_ = place.shared() + task.rings_at + team_ * task.n_stages * kRows * task.slot_bytes;
    exchanged_ = reinterpret_cast<float*>(place.shared() + task.sums_at) +
                 team_ * kWarps * kRows * kColumns * kLanes;
    n_teams_ = place.n_blocks() * (place.n_threads() / kLanes / kTeam);
    next_chunk_ = team_ * place.n_blocks() + place.block();
  }

  UNPACED_BOTH void run() {
    place_.prepare_ring(team_, task_.n_stages, kRows, kTeam);
    // Which experts are asked for, an earlier kernel says.
    const bool early = task_.experts == nullptr;
    std::int32_t chunk = next_chunk_;
    if (early) fetch_first_stages();
    place_.let_later_kernels_start(task_.next_is_ours);
    place_.await_earlier_kernels();
    if (!early) fetch_first_stages();
    Input held[kHeld > 0 ? kHeld : 1];
    if constexpr (kHeld > 0) {
      UNPACED_UNROLL
      for (int s = 0; s < kHeld; ++s) held[s] = gathered(0, s, lane_);
    } else {
      store_inputs();
      place_.meet_block();
    }
    for (; chunk < task_.n_chunks; chunk += n_teams_) work_on(chunk, held);
    place_.end_writes(task_.next_is_ours);
  }

 private:
  static constexpr int kOutputsGlu = kRows / 2 > 0 ? kRows / 2 : 1;

  UNPACED_BOTH bool paired() const { return task_.end == MatVecEnd::kGlu; }
  UNPACED_BOTH Chunk chunk_of(std::int32_t number) const {
    Chunk chunk = chunk_at(task_, number, paired() ? kOutputsGlu : kRows);
    if (task_.experts != nullptr) chunk.expert_id = task_.experts[chunk.expert];
    return chunk;
  }

  // --- weights -------------------------------------------------------------------------------

  // Where row `r` of a chunk begins. Rows behind the last one are the last one again.
  UNPACED_BOTH const std::uint8_t* row_at(const Chunk& chunk, int r) const {
    const int m = paired() ? 1 - (r & 1) : chunk.matrix;  // gate is matrix 0
    const TaskMatrix& matrix = task_.matrices[m];
    const std::int32_t asked = chunk.first_row + (paired() ? r / 2 : r);
    const std::int32_t row = asked < matrix.n_rows ? asked : matrix.n_rows - 1;
    return matrix.weights + chunk.expert_id * matrix.expert_bytes +
           static_cast<std::int64_t>(row) * matrix.row_bytes;
  }

  UNPACED_BOTH std::int32_t slice_bytes(std::int32_t slice) const {
    const std::int32_t most = task_.slice_steps * Steps::kBlocks;
    const std::int32_t left = task_.n_blocks - slice * most;
    return (left < most ? left : most) * Format::kBytes;
  }

  UNPACED_BOTH std::uint8_t* slot_of(std::int32_t stage, int r) const {
    return ring_ + (stage * kRows + r) * task_.slot_bytes;
  }

  // Fetches the next stage: slices follow one another, then the team's next chunk's. A lane knows
  // where one of the chunk's rows goes on.
  UNPACED_BOTH void fetch_next() {
    if (next_chunk_ >= task_.n_chunks) return;
    if (next_slice_ == 0) next_row_ = row_at(chunk_of(next_chunk_), lane_ % kRows);
    place_.template fetch<kRows, kTeam>(team_, warp_, lane_, next_stage_, slice_bytes(next_slice_),
                                        next_row_, [&](int r) { return slot_of(next_stage_, r); });
    next_row_ += task_.slice_steps * Steps::kBytes;
    if (++next_stage_ == task_.n_stages) next_stage_ = 0;
    if (++next_slice_ == task_.n_slices) {
      next_slice_ = 0;
      next_chunk_ += n_teams_;
    }
  }

  UNPACED_BOTH void fetch_first_stages() {
    for (std::int32_t i = 0; i < task_.n_stages; ++i) fetch_next();
  }

  // --- inputs --------------------------------------------------------------------------------

  UNPACED_BOTH Input gathered(std::int32_t vector, std::int32_t step, int lane) const {
    const std::int32_t asked = step * Steps::kBlocks + Steps::block_of(lane);
    if (kColumns == 1 && asked >= task_.n_blocks) return Input{};
    // Behind the row's end something, which is not used: no branch stands between loads then.
    const std::int32_t block = asked < task_.n_blocks ? asked : task_.n_blocks - 1;
    const auto* from =
        reinterpret_cast<const typename Format::Source*>(task_.input + vector * task_.input_stride);
    return Format::gather(from + block * Format::kSources, Steps::part_of(lane));
  }

  UNPACED_BOTH std::uint8_t* stored_step(std::int32_t vector, std::int32_t step) const {
    return place_.shared() + task_.inputs_at + (vector * task_.n_steps + step) * Stored::kStepBytes;
  }

  UNPACED_BOTH void store_inputs() {
    if constexpr (kQuads) {
      if (task_.n_inputs * task_.n_steps * kQuad <= place_.n_threads() / kLanes)
        store_quads<1>();
      else
        store_quads<4>();
    } else if constexpr (kColumns == 1) {
      store_few_inputs();
    } else {
      store_many_inputs();
    }
  }

  // A warp has one or two steps, and nothing else to do before the first product begins.
  UNPACED_BOTH void store_few_inputs() {
    const int n_warps = place_.n_threads() / kLanes;
    for (std::int32_t vector = 0; vector < task_.n_inputs; ++vector) {
      for (std::int32_t step = place_.thread() / kLanes; step < task_.n_steps; step += n_warps)
        Stored::store(stored_step(vector, step), lane_, gathered(vector, step, lane_));
    }
  }

  // A warp has one of a step's four threads at a time, or several at once: they come from far.
  template <int kAtOnce>
  UNPACED_BOTH void store_quads() {
    using Single = typename Format::Single;
    const std::int32_t n_warps = place_.n_threads() / kLanes;
    const std::int32_t n = task_.n_inputs * task_.n_steps * kQuad;
    for (std::int32_t first = place_.thread() / kLanes; first < n; first += kAtOnce * n_warps) {
      typename Single::Input inputs[kAtOnce];
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps < n ? first + i * n_warps : first;
        const std::int32_t vector = task_.n_inputs == 1 ? 0 : at / kQuad / task_.n_steps;
        const std::int32_t step = at / kQuad - vector * task_.n_steps;
        const std::int32_t asked = step * Steps::kBlocks + block_;
        const std::int32_t block = asked < task_.n_blocks ? asked : task_.n_blocks - 1;
        const auto* from = reinterpret_cast<const typename Format::Source*>(
            task_.input + vector * task_.input_stride);
        inputs[i] = Single::gather(from + block * Format::kSources, kQuad * part_ + at % kQuad);
      }
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps;
        if (at < n) Stored::store_one(stored_step(0, at / kQuad), lane_, at % kQuad, inputs[i]);
      }
    }
  }

  // Several steps at once: they come from far.
  UNPACED_BOTH void store_many_inputs() {
    constexpr int kAtOnce = 4;
    const std::int32_t n_warps = place_.n_threads() / kLanes;
    const std::int32_t n = task_.n_inputs * task_.n_steps;
    for (std::int32_t first = place_.thread() / kLanes; first < n; first += kAtOnce * n_warps) {
      Input inputs[kAtOnce];
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps < n ? first + i * n_warps : first;
        inputs[i] = gathered(at / task_.n_steps, at % task_.n_steps, lane_);
      }
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps;
        if (at < n) Stored::store(stored_step(0, at), lane_, inputs[i]);
      }
    }
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
        const std::uint8_t* input = stored_step(vector, first + s);
        const std::int32_t column_bytes = task_.n_steps * Stored::kStepBytes;
        add_step(
            at, meets(first + s), w,
            [&](int c) { return Stored::load(input + c * column_bytes, lane_); }, sums);
      }
    }
  }

  // --- a chunk -------------------------------------------------------------------------------

  UNPACED_BOTH void work_on(std::int32_t number, const Input (&held)[kHeld > 0 ? kHeld : 1]) {
    const Chunk chunk = chunk_of(number);
    const Output output = output_of(chunk);
    const float added = output.added != nullptr ? *output.added : 0.0F;
    Sums sums = {};
    const std::uint8_t* row_begins[kRows];
    UNPACED_UNROLL
    for (int r = 0; r < kRows; ++r) row_begins[r] = row_at(chunk, r);
    for (std::int32_t slice = 0; slice < task_.n_slices; ++slice) {
      place_.template await_stage<kTeam>(team_, stage_, parity_);
      const std::int32_t first = slice * task_.slice_steps;
      const std::uint8_t* rows[kRows];
      UNPACED_UNROLL
      for (int r = 0; r < kRows; ++r)
        rows[r] = place_.fetched(row_begins[r], first * Steps::kBytes, slot_of(stage_, r));
      if constexpr (kHeld > 0)
        add_held(rows, held, sums);
      else
        add_stored(rows, first,
                   task_.chunks_per_expert != 0 && task_.n_inputs > 1 ? chunk.expert : 0, sums);
      place_.template meet_team<kTeam>(team_);
      fetch_next();
      if (++stage_ == task_.n_stages) stage_ = 0, parity_ ^= 1;
    }
    store(output, added, Totals(place_, team_, warp_, lane_, exchanged_).of(sums));
  }

  // --- outputs -------------------------------------------------------------------------------

  // What this lane stores, or hands to the lane that does.
  struct Output {
    const float* added;
    float* out;
  };

  UNPACED_BOTH Output output_of(const Chunk& chunk) const {
    const int value = value_of_lane(lane_, Shape::kShare);
    const int r = Totals::share_row(warp_) + value / Shape::kShareColumns;
    const int column = Totals::share_column(warp_) + value % Shape::kShareColumns;
    const int m = paired() ? 1 - (r & 1) : chunk.matrix;
    const TaskMatrix& matrix = task_.matrices[m];
    const std::int32_t row = chunk.first_row + (paired() ? r / 2 : r);
    if (row >= matrix.n_rows || column >= task_.n_columns) return {nullptr, nullptr};
    Output output = {matrix.added, nullptr};
    if (output.added != nullptr) {
      output.added += chunk.expert_id * static_cast<std::int64_t>(matrix.n_rows) + row +
                      column * matrix.added_stride;
    }
    const bool first = lane_ % (kLanes / Shape::kShare) == 0;
    if (first && m == (paired() ? 1 : chunk.matrix))
      output.out = matrix.out + (chunk.expert + column) * matrix.out_stride + row;
    return output;
  }

  UNPACED_BOTH void store(const Output& output, float added, float total) {
    if (task_.end != MatVecEnd::kPlain && (task_.adds_zero || output.added != nullptr))
      total = sum(total, added);
    if constexpr (kRows > 1) {
      if (paired()) {
        // Up and gate are neighbouring rows: so many values apart.
        constexpr int kAcross = kLanes / Shape::kShare * Shape::kShareColumns;
        const float gate = place_.shuffle_xor(total, kAcross);
        total = place_.glu(total, gate, task_);
      }
    }
    if (output.out != nullptr) *output.out = total;
  }

  const Task& task_;
  Place& place_;
  int lane_, warp_, team_, block_, part_;
  std::uint8_t* ring_;
  float* exchanged_;  // the team's sums; only a wide team and one of quads have such memory
  std::int32_t n_teams_;
  const std::uint8_t* next_row_ = nullptr;
  std::int32_t next_chunk_;
  std::int32_t next_slice_ = 0;
  std::int32_t next_stage_ = 0;
  std::int32_t stage_ = 0;    // the one that is read next
  std::uint32_t parity_ = 0;  // of its barrier's phase
};

}  // namespace unpaced::mat_vec
