#include "device/prompt/prompt_inputs.h"

#include <algorithm>
#include <cstddef>

namespace unpaced {

PromptInputs::PromptInputs(const LlamaBridge::Most& most)
    : words_(2 * static_cast<std::size_t>(most.n_tokens) + 1),
      cells_(static_cast<std::size_t>(most.n_tokens)),
      mask_(static_cast<std::size_t>(most.n_tokens) * static_cast<std::size_t>(most.n_kv)) {}

void PromptInputs::upload(LlamaBridge& bridge, const Slot& slot, std::span<const TokenId> tokens,
                          const CellPlan& plan, const Window& window) {
  const auto n = static_cast<std::size_t>(window.n_tokens);
  const std::size_t last = tokens.size() - 1;
  std::int32_t* positions = words_.data() + n;
  for (std::size_t i = 0; i < n; ++i) {
    // Behind the last token there is nothing but itself, which writes the same into the same cell.
    const std::size_t token = std::min(i, last);
    words_.data()[i] = tokens[token];
    positions[i] = slot.n_cells() + static_cast<std::int32_t>(token);
    cells_.data()[i] = plan.first_cell + plan.cells[token];
  }
  positions[n] = static_cast<std::int32_t>(last);
  fill_mask(bridge, slot, plan, window);
  const auto copy = [&bridge](void* to, const void* from, std::size_t n_bytes) {
    cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, bridge.stream()),
               "cudaMemcpyAsync");
  };
  const StepInputs& inputs = bridge.inputs();
  copy(inputs.token, words_.data(), n * sizeof(std::int32_t));
  copy(inputs.position, positions, n * sizeof(std::int32_t));
  copy(bridge.output_index(), positions + n, sizeof(std::int32_t));
  copy(inputs.k_index, cells_.data(), n * sizeof(std::int64_t));
  copy(inputs.v_index, cells_.data(), n * sizeof(std::int64_t));
  copy(inputs.mask, mask_.data(),
       n * static_cast<std::size_t>(window.n_kv) * sizeof(std::uint16_t));
}

void PromptInputs::fill_mask(LlamaBridge& bridge, const Slot& slot, const CellPlan& plan,
                             const Window& window) {
  const auto n_kv = static_cast<std::size_t>(window.n_kv);
  const auto n_rows = static_cast<std::size_t>(window.n_tokens);
  std::uint16_t* row = mask_.data();
  bridge.fill_mask(slot.sequence, slot.n_cells(), {row, n_kv});
  row[plan.cells.front()] = 0;
  // Every token sees what the one before it sees, and itself.
  for (std::size_t i = 1; i < n_rows; ++i, row += n_kv) {
    std::copy_n(row, n_kv, row + n_kv);
    if (i < plan.cells.size()) row[n_kv + static_cast<std::size_t>(plan.cells[i])] = 0;
  }
}

}  // namespace unpaced
