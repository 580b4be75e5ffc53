// The work of a block of threads whose products tensor cores make (tile.h): chunks of sixteen rows,
// one after the other, by eight columns.
//
// ggml's threads have a sum each, which nobody else may add to. With one column they are four warps
// a row, or two with five columns and more. Of each of ggml's warps, threads 4 * q and the next
// three are called quad q: they have neighbouring words of a block of weights, and the same scales.
// A block's eight warps have a quad each, of all of ggml's warps; a lane adds these's sums in
// order. The rest is done by a ninth warp, while the others multiply the next chunk's rows: it
// reads what they have written to shared memory, where the butterfly's offsets 16, 8 and 4 are
// among quads, and 2 and 1 among a lane's four sums. A tenth fetches weights.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/chunk_rows.h"
#include "device/kernels/mat_vec/block/producer.h"
#include "device/kernels/mat_vec/block/record_inputs.h"
#include "device/kernels/mat_vec/block/row_output.h"
#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

inline constexpr int kTileQuads = kLanes / kQuad;

// A build as a type, for Producer and ChunkRows as well (shape.h).
template <class Format_, int kWarps_>
struct TileShape {
  using Format = Format_;
  static constexpr int kWarps = kWarps_;  // ggml's
  static constexpr int kRows = kTileRows;
  static constexpr int kTeam = 1;  // of all warps
  static constexpr bool kProducer = true;
};

// Shared memory beside inputs and weights: the quads' sums. Before, where nobody has made records
// of the inputs, two pieces of the columns' blocks, one of which is rearranged while the other
// comes.
inline constexpr int kTileScratch = 16384;
inline constexpr int kUnitValues = 256;
inline constexpr int kUnitBytes = kUnitValues / kQ8Values * int{sizeof(Q8Block)};
inline constexpr int kPieceUnits = 3;
inline constexpr int kPieceStride = kPieceUnits * kUnitBytes + 16;  // a column's
inline constexpr int kPieceBytes = kPieceStride * kTileColumns;
static_assert(2 * kPieceBytes <= kTileScratch);
static_assert(kTileColumns == kRecordColumns);

// `Place` is where it runs, as BlockWork's is (product.h).
template <class Shape, class Place>
class TileWork {
  using Format = typename Shape::Format;
  using Record = typename Format::Record;
  using Rows = ChunkRows<Format, kTileRows>;
  static constexpr int kWarps = Shape::kWarps;
  static constexpr int kWarpBlocks = Step<Format>::kBlocks;  // of one of ggml's warps
  static constexpr int kBlockQuads = Format::kThreads / kQuad;
  static constexpr int kGroup = kWarps * kWarpBlocks;  // all of ggml's threads' in a turn
  // The quads' sums: a value of each thread.
  struct alignas(16) Sums {
    float of[kQuad];
  };
  static_assert(kTileScratch >= kTileQuads * TileLane::kSums * kLanes * int{sizeof(Sums)});

 public:
  UNPACED_BOTH TileWork(const Task& task, Place& place) : task_(task), place_(place) {
    lane_ = place.thread() % kLanes;
    quad_ = place.thread() / kLanes;
  }

  UNPACED_BOTH void run() {
    place_.prepare_tile(task_.n_stages);
    if (place_.is_finisher()) return finish();
    if (place_.is_producer()) return Producer<Shape, Place>(task_, place_).run();
    place_.let_later_kernels_start(task_.next_is_ours);
    place_.await_earlier_kernels();
    if (task_.records != nullptr)
      fetch_records();
    else
      store_inputs();
    std::uint32_t round = 0;
    Chunks chunk(task_, place_.block());
    for (; chunk.is_one(task_); chunk.advance(task_, place_.n_blocks())) add_chunk(chunk, round++);
  }

 private:
  // --- inputs --------------------------------------------------------------------------------

  // The record that has a block's first inputs.
  UNPACED_BOTH std::uint8_t* record_of(std::int32_t block) const {
    return record(block * Format::kValues / kRecordValues);
  }
  UNPACED_BOTH std::uint8_t* record(std::int32_t number) const {
    return place_.shared() + task_.inputs_at + number * Record::kBytes;
  }
  UNPACED_BOTH std::uint8_t* scratch() const { return place_.shared() + task_.sums_at; }

  // Rows and their records go on behind their last value, up to a multiple of 512.
  UNPACED_BOTH std::int32_t n_inputs(int of_values) const {
    return divided_up(task_.n_blocks * Format::kValues, of_values);
  }

  // Asks for a piece of all columns; those that are not there are the last one again.
  UNPACED_BOTH void fetch_piece(std::int32_t piece) const {
    const std::int32_t first = piece * kPieceUnits, left = n_inputs(kUnitValues) - first;
    const std::int32_t bytes = (left < kPieceUnits ? left : kPieceUnits) * kUnitBytes;
    if (place_.thread() != 0 || left <= 0) return;
    place_.announce_inputs(piece % 2, bytes * kTileColumns);
    for (int c = 0; c < kTileColumns; ++c) {
      const std::int32_t column = c < task_.n_columns ? c : task_.n_columns - 1;
      place_.fetch_inputs(piece % 2, task_.input + column * task_.input_stride + first * kUnitBytes,
                          bytes, scratch() + piece % 2 * kPieceBytes + c * kPieceStride);
    }
  }

  UNPACED_BOTH void fetch_records() const {
    if (place_.thread() == 0) {
      const std::int32_t bytes = n_inputs(kRecordValues) * Record::kBytes;
      place_.announce_inputs(0, bytes);
      place_.fetch_inputs(0, task_.records, bytes, record(0));
    }
    place_.await_inputs(0, 0);
  }

  UNPACED_BOTH void store_inputs() {
    constexpr int kUnitRecords = kUnitValues / kRecordValues;
    fetch_piece(0);
    fetch_piece(1);
    const std::int32_t n_units = n_inputs(kUnitValues);
    for (std::int32_t piece = 0; piece * kPieceUnits < n_units; ++piece) {
      const std::int32_t first = piece * kPieceUnits, left = n_units - first;
      const std::int32_t n = (left < kPieceUnits ? left : kPieceUnits) * kUnitRecords;
      place_.await_inputs(piece % 2, piece / 2 & 1);
      const auto* column = reinterpret_cast<const Q8Block*>(scratch() + piece % 2 * kPieceBytes +
                                                            TileLane(lane_).group() * kPieceStride);
      for (std::int32_t i = quad_; i < n; i += kTileQuads)
        store_record<Record>(record(first * kUnitRecords + i), lane_, column + 2 * i);
      place_.meet_block();
      fetch_piece(piece + 2);
    }
  }

  // --- a chunk -------------------------------------------------------------------------------

  using LaneSums = float[kWarps][kQuad][TileLane::kSums];

  UNPACED_BOTH void add_chunk(const Chunks& chunk, std::uint32_t round) {
    LaneSums sums = {};
    const Rows rows(task_);
    const std::uint8_t* begins[2] = {};
    if constexpr (!Rows::kIsAligned) {
      UNPACED_UNROLL
      for (int r = 0; r < 2; ++r) begins[r] = rows.begin_of(chunk, TileLane(lane_).group() + 8 * r);
    }
    for (std::int32_t slice = 0; slice < task_.n_slices; ++slice) {
      place_.template await_stage<Shape::kTeam>(0, stage_, parity_);
      const std::int32_t begin = slice * task_.slice_steps * kWarpBlocks;
      const std::uint8_t* slots[2];
      UNPACED_UNROLL
      for (int r = 0; r < 2; ++r) {
        slots[r] = place_.shared() + task_.rings_at +
                   (stage_ * kTileRows + TileLane(lane_).group() + 8 * r) * task_.slot_bytes;
        if constexpr (!Rows::kIsAligned)
          slots[r] = place_.fetched(begins[r], begin * Format::kBytes, slots[r]);
      }
      const std::int32_t left = task_.n_blocks - begin;
      const std::int32_t most = task_.slice_steps * kWarpBlocks;
      const std::int32_t n = left < most ? left : most;
      for (std::int32_t group = 0; group < n; group += kGroup) {
        if (group + kGroup <= n)
          add_group<true>(slots, begin, group, n, sums);
        else
          add_group<false>(slots, begin, group, n, sums);
      }
      place_.free_stage_by_warp(0, stage_, lane_);
      if (++stage_ == task_.n_stages) stage_ = 0, parity_ ^= 1;
    }
    // Before the first round there is nothing to read: that phase counts as complete.
    place_.await_read((round + 1) & 1);
    write(sums);
    place_.tell_written(lane_);
  }

  // A quad's blocks of a turn, of each of ggml's warps.
  template <bool kWhole>
  UNPACED_BOTH void add_group(const std::uint8_t* const (&slots)[2], std::int32_t begin,
                              std::int32_t group, std::int32_t n, LaneSums& sums) {
    UNPACED_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const std::int32_t block = group + w * kWarpBlocks + quad_ / kBlockQuads;
      if (!kWhole && block >= n) break;
      const std::uint8_t* const blocks[2] = {slots[0] + block * Format::kBytes,
                                             slots[1] + block * Format::kBytes};
      const std::uint8_t* inputs = record_of(begin + block);
      const int part = Format::part_of(begin + block, quad_);
      const auto rows = Format::load(blocks, part, lane_, inputs, place_);
      Format::add(rows, inputs, part, lane_, place_, sums[w]);
    }
  }

  // --- sums ----------------------------------------------------------------------------------

  UNPACED_BOTH Sums* sums_of(int i, int of_quad) const {
    return reinterpret_cast<Sums*>(scratch()) + (i * kTileQuads + of_quad) * kLanes + lane_;
  }

  // The sums of ggml's warps, in their order.
  UNPACED_BOTH void write(const LaneSums& sums) {
    UNPACED_UNROLL
    for (int i = 0; i < TileLane::kSums; ++i) {
      Sums totals;
      UNPACED_UNROLL
      for (int t = 0; t < kQuad; ++t) {
        totals.of[t] = sums[0][t][i];
        UNPACED_UNROLL
        for (int w = 1; w < kWarps; ++w) totals.of[t] = sum(totals.of[t], sums[w][t][i]);
      }
      *sums_of(i, quad_) = totals;
    }
  }

  // The butterfly of all of a chunk's rows and columns, four of them a lane; and what ends them.
  UNPACED_BOTH void finish() {
    const Rows rows(task_);
    place_.let_later_kernels_start(task_.next_is_ours);
    place_.await_earlier_kernels();
    std::uint32_t round = 0;
    Chunks chunk(task_, place_.block());
    for (; chunk.is_one(task_); chunk.advance(task_, place_.n_blocks())) {
      const TileLane at(lane_);
      RowOutput outputs[TileLane::kSums];
      float added[TileLane::kSums];
      UNPACED_UNROLL
      for (int i = 0; i < TileLane::kSums; ++i) {
        outputs[i] =
            output_of<kTileColumns>(task_, rows, chunk, at.row_of(i), at.column_of(i), true);
        added[i] = outputs[i].added != nullptr ? *outputs[i].added : 0.0F;
      }
      place_.await_written(round++ & 1);
      float totals[TileLane::kSums];
      UNPACED_UNROLL
      for (int i = 0; i < TileLane::kSums; ++i) totals[i] = product(total_of(i), Format::kOfSums);
      place_.tell_read(lane_);
      UNPACED_UNROLL
      for (int i = 0; i < TileLane::kSums; ++i) {
        float total = totals[i];
        if (task_.end != MatVecEnd::kPlain && (task_.adds_zero || outputs[i].added != nullptr))
          total = sum(total, added[i]);
        if (rows.paired()) {
          // Up and gate are neighbouring rows: so many lanes apart.
          constexpr int kAcross = 4;
          const float gate = place_.shuffle_xor(total, kAcross);
          total = place_.glu(total, gate, task_);
        }
        if (outputs[i].out != nullptr) *outputs[i].out = total;
      }
    }
    place_.end_writes(task_.next_is_ours);
  }

  UNPACED_BOTH float total_of(int i) const {
    Sums of_quads[kTileQuads];
    UNPACED_UNROLL
    for (int q = 0; q < kTileQuads; ++q) of_quads[q] = *sums_of(i, q);
    float of_thread[kQuad];
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t) {
      float quads[4];
      UNPACED_UNROLL
      for (int q = 0; q < 4; ++q) quads[q] = sum(of_quads[q].of[t], of_quads[q + 4].of[t]);
      of_thread[t] = sum(sum(quads[0], quads[2]), sum(quads[1], quads[3]));
    }
    return sum(sum(of_thread[0], of_thread[2]), sum(of_thread[1], of_thread[3]));
  }

  const Task& task_;
  Place& place_;
  int lane_, quad_;           // which of a row's eight the warp has
  std::int32_t stage_ = 0;    // the one that is read next
  std::uint32_t parity_ = 0;  // of its barrier's phase
};

}  // namespace unpaced::mat_vec
