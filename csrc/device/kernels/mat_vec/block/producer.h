// A warp of a block of threads that does nothing but fetch the others' weights.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/chunk_rows.h"
#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// A thread has a row of each chunk of one team. All teams' slices are fetched by turns. `Shape` and
// `Place` as BlockWork has them (product.h).
template <class Shape, class Place>
class Producer {
  using Format = typename Shape::Format;
  using Rows = ChunkRows<Format, Shape::kRows>;
  static constexpr int kRows = Shape::kRows;
  static constexpr int kTeams = Place::kTeams / Shape::kTeam;
  static_assert(kTeams * kRows <= kLanes);

 public:
  UNPACED_BOTH Producer(const Task& task, Place& place) : task_(task), rows_(task), place_(place) {}

  UNPACED_BOTH void run() {
    // In this order: who begins later has no need to wait for which experts they are.
    if (task_.waits_for_experts) place_.await_earlier_kernels();
    place_.let_later_kernels_start(task_.next_is_ours);
    const int lane = place_.thread() % kLanes;
    const int team = lane / kRows % kTeams, r = lane % kRows;
    Chunks chunk(task_, team * place_.n_blocks() + place_.block());
    bool has = lane < kTeams * kRows && chunk.is_one(task_);
    std::int32_t slice = 0;
    std::int32_t stage = 0;
    std::uint32_t parity = 1;  // of the phase in which a stage becomes free: at first it is
    const std::uint8_t* from = has ? rows_.begin_of(chunk, r) : nullptr;
    while (place_.any(has)) {
      if (has) place_.await_free(team, stage, parity);
      place_.template fetch_rows<kRows, kTeams, Rows::kIsAligned>(
          has, lane, stage, task_.n_stages, from, rows_.slice_bytes(slice),
          place_.shared() + task_.rings_at, task_.slot_bytes);
      from += task_.slice_steps * Step<Format>::kBytes;
      if (++stage == task_.n_stages) stage = 0, parity ^= 1;
      if (++slice < task_.n_slices) continue;
      slice = 0;
      chunk.advance(task_, place_.n_blocks() * kTeams);
      has = has && chunk.is_one(task_);
      if (has) from = rows_.begin_of(chunk, r);
    }
    place_.await_earlier_kernels();
  }

 private:
  const Task& task_;
  const Rows rows_;
  Place& place_;
};

}  // namespace unpaced::mat_vec
