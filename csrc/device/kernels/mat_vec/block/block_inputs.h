// A block's inputs: gathered from rounded rows, and kept in shared memory.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/stored_inputs.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// `Shape` and `Place` as BlockWork has them (product.h).
template <class Shape, class Place>
class BlockInputs {
  using Format = typename Shape::Format;
  using Input = typename Format::Input;
  using Stored = StoredInputs<Format>;
  using Steps = Step<Format>;
  static constexpr int kColumns = Shape::kColumns;

 public:
  UNPACED_BOTH BlockInputs(const Task& task, Place& place) : task_(task), place_(place) {
    lane_ = place.thread() % kLanes;
    if (task.has_one_expert) first_ = task.input_stride * (place.block() % task.n_experts);
  }

  // What this lane needs of a step.
  UNPACED_BOTH Input gathered(std::int32_t vector, std::int32_t step) const {
    const std::int32_t asked = step * Steps::kBlocks + Steps::block_of(lane_);
    if (kColumns == 1 && asked >= task_.n_blocks) return Input{};
    return Format::gather(source(vector, asked), Steps::part_of(lane_));
  }

  // All of the block's threads store a part each.
  UNPACED_BOTH void store() {
    if constexpr (kIsQuad<Format>) {
      if (task_.n_inputs * task_.n_steps * kQuad <= place_.n_threads() / kLanes)
        store_quads<1>();
      else
        store_quads<4>();
    } else if constexpr (kColumns == 1) {
      store_few();
    } else {
      store_many();
    }
  }

  UNPACED_BOTH Input load(std::int32_t vector, std::int32_t step) const {
    return Stored::load(step_at(vector, step), lane_);
  }

 private:
  // Behind the row's end something, which is not used: no branch stands between loads then.
  UNPACED_BOTH const typename Format::Source* source(std::int32_t vector,
                                                     std::int32_t asked) const {
    const std::int32_t block = asked < task_.n_blocks ? asked : task_.n_blocks - 1;
    return reinterpret_cast<const typename Format::Source*>(task_.input + first_ +
                                                            vector * task_.input_stride) +
           block * Format::kSources;
  }

  UNPACED_BOTH std::uint8_t* step_at(std::int32_t vector, std::int32_t step) const {
    return place_.shared() + task_.inputs_at + (vector * task_.n_steps + step) * Stored::kStepBytes;
  }

  // A warp has one or two steps, and nothing else to do before the first product begins.
  UNPACED_BOTH void store_few() {
    const int n_warps = place_.n_threads() / kLanes;
    for (std::int32_t vector = 0; vector < task_.n_inputs; ++vector) {
      for (std::int32_t step = place_.thread() / kLanes; step < task_.n_steps; step += n_warps)
        Stored::store(step_at(vector, step), lane_, gathered(vector, step));
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
        inputs[i] = Single::gather(source(vector, step * Steps::kBlocks + Steps::block_of(lane_)),
                                   kQuad * Steps::part_of(lane_) + at % kQuad);
      }
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps;
        if (at < n) Stored::store_one(step_at(0, at / kQuad), lane_, at % kQuad, inputs[i]);
      }
    }
  }

  // Several steps at once: they come from far.
  UNPACED_BOTH void store_many() {
    constexpr int kAtOnce = 4;
    const std::int32_t n_warps = place_.n_threads() / kLanes;
    const std::int32_t n = task_.n_inputs * task_.n_steps;
    for (std::int32_t first = place_.thread() / kLanes; first < n; first += kAtOnce * n_warps) {
      Input inputs[kAtOnce];
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps < n ? first + i * n_warps : first;
        inputs[i] = gathered(at / task_.n_steps, at % task_.n_steps);
      }
      UNPACED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t at = first + i * n_warps;
        if (at < n) Stored::store(step_at(0, at), lane_, inputs[i]);
      }
    }
  }

  const Task& task_;
  Place& place_;
  int lane_;
  std::int64_t first_ = 0;  // where the block's own vector is
};

}  // namespace unpaced::mat_vec
