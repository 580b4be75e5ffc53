#include "device/lane/lane_inputs.h"

#include <algorithm>
#include <cstddef>

namespace unpaced {

LaneInputs::LaneInputs(std::int32_t n_lanes, std::int32_t n_cells)
    : words_(2 * static_cast<std::size_t>(n_lanes)),
      cells_(static_cast<std::size_t>(n_lanes)),
      mask_(static_cast<std::size_t>(n_lanes) * static_cast<std::size_t>(n_cells)) {}

void LaneInputs::upload(LlamaBridge& bridge, std::span<Slot* const> slots,
                        std::span<const CellPlan> plans, const Window& window) {
  const auto n = static_cast<std::size_t>(window.n_tokens);
  const auto n_kv = static_cast<std::size_t>(window.n_kv);
  std::int32_t* positions = words_.data() + n;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = *slots[i];
    const std::int32_t cell = plans[i].cells.front();
    words_.data()[i] = slot.next_token;
    positions[i] = slot.n_cells();
    cells_.data()[i] = plans[i].first_cell + cell;
    const std::span<std::uint16_t> mask(mask_.data() + i * n_kv, n_kv);
    bridge.fill_mask(slot.sequence, slot.n_cells(), mask);
    mask[static_cast<std::size_t>(cell)] = 0;
  }
  for (std::size_t i = slots.size(); i < n; ++i) {
    words_.data()[i] = words_.data()[0];
    positions[i] = positions[0];
    cells_.data()[i] = cells_.data()[0];
    std::copy_n(mask_.data(), n_kv, mask_.data() + i * n_kv);
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
}

}  // namespace unpaced
