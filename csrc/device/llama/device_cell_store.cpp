#include "device/llama/device_cell_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace unpaced {
namespace {

std::size_t bytes_of_cell(const std::vector<CellRows>& rows) {
  return std::size_t{rows.back().before} + rows.back().n_bytes;
}

std::vector<std::uint32_t> bytes_of_rows(const std::vector<CellRows>& rows) {
  std::vector<std::uint32_t> n_bytes;
  for (const CellRows& row : rows) n_bytes.push_back(row.n_bytes);
  return n_bytes;
}

}  // namespace

bool DeviceCellStore::can_copy(const LlamaBridge& bridge) {
  const std::vector<CellRows> rows = bridge.cell_rows();
  return bridge.n_streams() == 1 && !rows.empty() &&
         std::ranges::all_of(rows, [](const CellRows& row) { return row.n_bytes % kRowUnit == 0; });
}

DeviceCellStore::DeviceCellStore(CellStore& books, LlamaBridge& bridge)
    : books_(books),
      bridge_(bridge),
      host_rows_(bridge.cell_rows()),
      part_rows_(bytes_of_rows(host_rows_)),
      cell_bytes_(bytes_of_cell(host_rows_)),
      n_part_max_(std::min(part_cells_max(cell_bytes_), bridge.n_plan_max())),
      rows_(host_rows_.size()),
      cells_(static_cast<std::size_t>(n_part_max_)),
      packed_(cell_bytes_ * static_cast<std::size_t>(n_part_max_)) {
  load_copy_kernels();
  copy_up_now(rows_.data(), host_rows_.data(), host_rows_.size() * sizeof(CellRows));
  // Before the blocks of a step that is under way, as soon as one of those ends.
  int lowest = 0;
  int highest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
             "cudaDeviceGetStreamPriorityRange");
  cuda_check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
             "cudaStreamCreate");
}

DeviceCellStore::~DeviceCellStore() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void DeviceCellStore::await_context() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  bridge_.synchronize_context();
  waited_us_ += std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
}

std::int32_t DeviceCellStore::park(Slot& slot) {
  // A chunk of a prompt may still be on its way into the cells: its request was cancelled.
  await_context();
  return books_.park(slot);
}

std::vector<std::byte> DeviceCellStore::sample_state(const Slot& slot) {
  await_context();
  return books_.sample_state(slot);
}

bool DeviceCellStore::copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                                std::span<std::byte> to) {
  const auto cells = std::span(cells_.data(), static_cast<std::size_t>(n));
  if (n > n_part_max_ || !bridge_.find(sequence, first, cells)) return false;
  copy(RowCopy::kPack, n);
  std::memcpy(to.data(), packed_.data(), to.size());
  return true;
}

bool DeviceCellStore::restore_part(Slot& slot, std::span<const TokenId> tokens,
                                   std::span<const std::byte> part) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  if (n > n_part_max_) return false;
  // What was computed last may still be on its way into cells that are free now.
  await_context();
  if (!bridge_.claim(slot.sequence, slot.n_cells(), tokens,
                     std::span(cells_.data(), tokens.size()))) {
    return false;
  }
  std::memcpy(packed_.data(), part.data(), part.size());
  copy(RowCopy::kUnpack, n);
  slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
  return true;
}

void DeviceCellStore::copy(RowCopy direction, std::int32_t n) {
  copy_rows(direction, rows_.data(), static_cast<std::int32_t>(host_rows_.size()), cells_.device(),
            n, packed_.device(), stream_);
  cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

}  // namespace unpaced
