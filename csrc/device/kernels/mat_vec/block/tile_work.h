// The work of a block of threads whose products tensor cores make (tile.h): chunks of sixteen rows,
// one after the other, by eight columns.
//
// ggml's threads have a sum each, which nobody else may add to. With one column they are 128 a row
// (four warps), or 64 with five columns and more, and a block's eight warps share them: warp w has
// every second block of weights, from w / 4 on, and of those record w % 4. So its sums are of
// ggml's lanes 16 * (w / 4) + 4 * (w % 4) and the next three, of each of ggml's warps: a lane adds
// the warps' in order. The rest is done by a ninth warp, while the others multiply the next
// chunk's rows: it reads what they have written to shared memory, where the butterfly's offsets 16,
// 8 and 4 are among the warps, and 2 and 1 among a lane's four sums. A tenth fetches weights.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/chunk_rows.h"
#include "device/kernels/mat_vec/block/producer.h"
#include "device/kernels/mat_vec/block/row_output.h"
#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// A build as a type, for Producer and ChunkRows as well (shape.h).
template <class Format_, int kWarps_>
struct TileShape {
  using Format = Format_;
  static constexpr int kWarps = kWarps_;  // ggml's
  static constexpr int kRows = kTileRows;
  static constexpr int kTeam = 8;  // all of a block's
  static constexpr bool kProducer = true;
};

// Shared memory beside inputs and weights: the warps' sums. Before, where nobody has made records
// of the inputs, two pieces of the columns' blocks, one of which is rearranged while the other
// comes.
inline constexpr int kTileScratch = 16384;
inline constexpr int kPieceBlocks = 3;                                             // of weights
inline constexpr int kPieceStride = kPieceBlocks * 8 * int{sizeof(Q8Block)} + 16;  // a column's
inline constexpr int kPieceBytes = kPieceStride * kTileColumns;
static_assert(2 * kPieceBytes <= kTileScratch);
static_assert(kTileColumns == kRecordColumns);

// `Place` is where it runs, as BlockWork's is (product.h).
template <class Shape, class Place>
class TileWork {
  using Format = typename Shape::Format;
  using Rows = ChunkRows<Format, kTileRows>;
  static constexpr int kWarps = Shape::kWarps;
  static constexpr int kThreads = Format::kRecordThreads;
  static constexpr int kGroup = 2 * kWarps;  // blocks that all of ggml's threads meet in a turn
  static constexpr int kSourceBytes = Format::kSources * int{sizeof(Q8Block)};
  static_assert(kThreads == 4 && Format::kRecords == 4 && Shape::kTeam == 8);
  static_assert(Rows::kIsAligned && kSourceBytes == 8 * int{sizeof(Q8Block)});
  // The warps' sums: a value of each thread of a record's.
  struct alignas(16) Sums {
    float of[kThreads];
  };
  static_assert(kTileScratch >= Shape::kTeam * TileLane::kSums * kLanes * int{sizeof(Sums)});

 public:
  UNPACED_BOTH TileWork(const Task& task, Place& place) : task_(task), place_(place) {
    lane_ = place.thread() % kLanes;
    warp_ = place.thread() / kLanes;
  }

  UNPACED_BOTH void run() {
    place_.prepare_ring(0, task_.n_stages, kTileRows, Shape::kTeam, Shape::kTeam);
    if (place_.is_finisher()) return finish();
    if (place_.is_producer()) return Producer<Shape, Place>(task_, place_).run();
    place_.let_later_kernels_start(task_.next_is_ours);
    place_.await_earlier_kernels();
    if (task_.records != nullptr)
      fetch_records();
    else
      store_inputs();
    std::uint32_t round = 0;
    for (std::int32_t i = place_.block(); i < task_.n_chunks; i += place_.n_blocks())
      add_chunk(round++);
  }

 private:
  // --- inputs --------------------------------------------------------------------------------

  UNPACED_BOTH std::uint8_t* record_of(std::int32_t block, int record) const {
    return place_.shared() + task_.inputs_at + (block * Format::kRecords + record) * kRecordBytes;
  }
  UNPACED_BOTH std::uint8_t* scratch() const { return place_.shared() + task_.sums_at; }

  // Asks for a piece of all columns; those that are not there are the last one again.
  UNPACED_BOTH void fetch_piece(std::int32_t piece) const {
    const std::int32_t first = piece * kPieceBlocks, left = task_.n_blocks - first;
    const std::int32_t bytes = (left < kPieceBlocks ? left : kPieceBlocks) * kSourceBytes;
    if (place_.thread() != 0 || left <= 0) return;
    place_.announce_inputs(piece % 2, bytes * kTileColumns);
    for (int c = 0; c < kTileColumns; ++c) {
      const std::int32_t column = c < task_.n_columns ? c : task_.n_columns - 1;
      place_.fetch_inputs(piece % 2,
                          task_.input + column * task_.input_stride + first * kSourceBytes, bytes,
                          scratch() + piece % 2 * kPieceBytes + c * kPieceStride);
    }
  }

  UNPACED_BOTH void fetch_records() const {
    const std::int32_t bytes = task_.n_blocks * Format::kRecords * kRecordBytes;
    if (place_.thread() == 0) {
      place_.announce_inputs(0, bytes);
      place_.fetch_inputs(0, task_.records, bytes, record_of(0, 0));
    }
    place_.await_inputs(0, 0);
  }

  UNPACED_BOTH void store_inputs() {
    fetch_piece(0);
    fetch_piece(1);
    for (std::int32_t piece = 0; piece * kPieceBlocks < task_.n_blocks; ++piece) {
      const std::int32_t first = piece * kPieceBlocks, left = task_.n_blocks - first;
      const std::int32_t n = (left < kPieceBlocks ? left : kPieceBlocks) * Format::kRecords;
      place_.await_inputs(piece % 2, piece / 2 & 1);
      const auto* column = reinterpret_cast<const Q8Block*>(scratch() + piece % 2 * kPieceBytes +
                                                            TileLane(lane_).group() * kPieceStride);
      for (std::int32_t i = warp_; i < n; i += Shape::kTeam) {
        Format::store_inputs(record_of(first + i / Format::kRecords, i % Format::kRecords), lane_,
                             column + i * (Format::kSources / Format::kRecords));
      }
      place_.meet_block();
      fetch_piece(piece + 2);
    }
  }

  // --- a chunk -------------------------------------------------------------------------------

  using LaneSums = float[kWarps][kThreads][TileLane::kSums];

  UNPACED_BOTH void add_chunk(std::uint32_t round) {
    LaneSums sums = {};
    const int record = warp_ % Format::kRecords;
    for (std::int32_t slice = 0; slice < task_.n_slices; ++slice) {
      place_.template await_stage<Shape::kTeam>(0, stage_, parity_);
      const std::uint8_t* slots = place_.shared() + task_.rings_at +
                                  (stage_ * kTileRows + TileLane(lane_).group()) * task_.slot_bytes;
      const std::int32_t begin = slice * task_.slice_steps * Step<Format>::kBlocks;
      const std::int32_t left = task_.n_blocks - begin;
      const std::int32_t most = task_.slice_steps * Step<Format>::kBlocks;
      const std::int32_t n = left < most ? left : most;
      for (std::int32_t group = 0; group < n; group += kGroup) {
        if (group + kGroup <= n)
          add_group<true>(slots, begin, group, n, record, sums);
        else
          add_group<false>(slots, begin, group, n, record, sums);
      }
      place_.free_stage_by_warp(0, stage_, lane_);
      if (++stage_ == task_.n_stages) stage_ = 0, parity_ ^= 1;
    }
    // Before the first round there is nothing to read: that phase counts as complete.
    place_.await_read((round + 1) & 1);
    write(sums);
  }

  // Each of ggml's warps' blocks of a turn. What is read of the next one does not wait.
  template <bool kWhole>
  UNPACED_BOTH void add_group(const std::uint8_t* slots, std::int32_t begin, std::int32_t group,
                              std::int32_t n, int record, LaneSums& sums) {
    typename Format::Rows rows[2];
    const auto load = [&](int w) {
      const std::int32_t block = group + 2 * w + warp_ / Format::kRecords;
      const std::uint8_t* const blocks[2] = {slots + block * Format::kBytes,
                                             slots + 8 * task_.slot_bytes + block * Format::kBytes};
      return Format::load(blocks, record, lane_, record_of(begin + block, record));
    };
    const auto has = [&](int w) { return kWhole || group + 2 * w + warp_ / Format::kRecords < n; };
    if (has(0)) rows[0] = load(0);
    UNPACED_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      if (w + 1 < kWarps && has(w + 1)) rows[(w + 1) % 2] = load(w + 1);
      if (!has(w)) break;
      Format::add(rows[w % 2], record_of(begin + group + 2 * w + warp_ / Format::kRecords, record),
                  lane_, place_, sums[w]);
    }
  }

  // --- sums ----------------------------------------------------------------------------------

  // The sums of ggml's warps, in their order.
  UNPACED_BOTH void write(const LaneSums& sums) {
    auto* written = reinterpret_cast<Sums*>(scratch());
    UNPACED_UNROLL
    for (int i = 0; i < TileLane::kSums; ++i) {
      Sums totals;
      UNPACED_UNROLL
      for (int t = 0; t < kThreads; ++t) {
        totals.of[t] = sums[0][t][i];
        UNPACED_UNROLL
        for (int w = 1; w < kWarps; ++w) totals.of[t] = sum(totals.of[t], sums[w][t][i]);
      }
      written[(i * Shape::kTeam + warp_) * kLanes + lane_] = totals;
    }
    place_.tell_written(lane_);
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
      for (int i = 0; i < TileLane::kSums; ++i) totals[i] = total_of(i);
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
    const Sums* written = reinterpret_cast<const Sums*>(scratch()) + i * Shape::kTeam * kLanes;
    Sums of_warps[Shape::kTeam];
    UNPACED_UNROLL
    for (int w = 0; w < Shape::kTeam; ++w) of_warps[w] = written[w * kLanes + lane_];
    float of_thread[kThreads];
    UNPACED_UNROLL
    for (int t = 0; t < kThreads; ++t) {
      float records[4];
      UNPACED_UNROLL
      for (int w = 0; w < 4; ++w) records[w] = sum(of_warps[w].of[t], of_warps[w + 4].of[t]);
      of_thread[t] = sum(sum(records[0], records[2]), sum(records[1], records[3]));
    }
    return sum(sum(of_thread[0], of_thread[2]), sum(of_thread[1], of_thread[3]));
  }

  const Task& task_;
  Place& place_;
  int lane_, warp_;
  std::int32_t stage_ = 0;    // the one that is read next
  std::uint32_t parity_ = 0;  // of its barrier's phase
};

}  // namespace unpaced::mat_vec
