#include "device/lane/lane_inputs.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace unpaced {

LaneInputs::LaneInputs(std::int32_t n_lanes, std::int32_t n_cells)
    : words_(2 * static_cast<std::size_t>(n_lanes)),
      cells_(static_cast<std::size_t>(n_lanes)),
      mask_(static_cast<std::size_t>(n_lanes) * static_cast<std::size_t>(n_cells)) {
  seen_.reserve(cells_.size());
}

std::span<std::uint16_t> LaneInputs::mask(std::size_t row, const Window& window) {
  const auto n_kv = static_cast<std::size_t>(window.n_kv);
  return {mask_.data() + row * n_kv, n_kv};
}

bool LaneInputs::pad(const LlamaBridge& bridge, std::size_t row, std::size_t first_row,
                     const Window& window) {
  const auto n = static_cast<std::size_t>(window.n_tokens);
  words_.data()[row] = words_.data()[first_row];
  words_.data()[n + row] = words_.data()[n + first_row];
  if (window.n_streams == 1) {
    cells_.data()[row] = cells_.data()[first_row];
    std::ranges::copy(mask(first_row, window), mask(row, window).begin());
    return true;
  }
  const std::int32_t stream = window.stream + static_cast<std::int32_t>(row);
  const std::int32_t cell = bridge.unused_cell(stream);
  if (cell < 0) return false;
  cells_.data()[row] = static_cast<std::int64_t>(stream) * bridge.n_cells() + cell;
  // Whoever sees nothing computes no number.
  std::ranges::fill(mask(row, window), kHiddenCell);
  mask(row, window).front() = 0;
  return true;
}

bool LaneInputs::upload(LlamaBridge& bridge, std::span<Slot* const> slots,
                        std::span<const CellPlan> plans, const Window& window) {
  const auto n = static_cast<std::size_t>(window.n_tokens);
  const auto n_kv = static_cast<std::size_t>(window.n_kv);
  std::int32_t* positions = words_.data() + n;
  std::uint64_t taken = 0;
  seen_.clear();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = *slots[i];
    const std::int32_t cell = plans[i].cells.front();
    const auto row = static_cast<std::size_t>(window.row_of(plans[i].stream, i));
    words_.data()[row] = slot.next_token;
    positions[row] = slot.n_cells();
    cells_.data()[row] = plans[i].first_cell + cell;
    seen_.push_back({slot.sequence, slot.n_cells(), mask(row, window)});
    taken |= std::uint64_t{1} << row;
  }
  bridge.fill_masks(seen_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    seen_[i].mask[static_cast<std::size_t>(plans[i].cells.front())] = 0;
  }
  const auto first_row = static_cast<std::size_t>(std::countr_zero(taken));
  for (std::size_t row = 0; row < n; ++row) {
    if ((taken >> row & 1U) == 0 && !pad(bridge, row, first_row, window)) return false;
  }
  const auto copy = [&bridge](void* to, const void* from, std::size_t n_bytes) {
    cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, bridge.stream()),
               "cudaMemcpyAsync");
  };
  const StepInputs& inputs = bridge.inputs();
  copy(inputs.mask, mask_.data(), n * n_kv * sizeof(std::uint16_t));
  copy(inputs.token, words_.data(), n * sizeof(std::int32_t));
  copy(inputs.position, positions, n * sizeof(std::int32_t));
  copy(inputs.k_index, cells_.data(), n * sizeof(std::int64_t));
  copy(inputs.v_index, cells_.data(), n * sizeof(std::int64_t));
  return true;
}

}  // namespace unpaced
