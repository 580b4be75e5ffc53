// The cell store of a KV cache on the GPU: the books are LlamaCellStore's, the rows of a part go to
// pinned memory and back in one kernel each, on a stream of their own. llama.h would make a call
// for each tensor and run of cells, thousands where slots have decoded side by side.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "device/llama/cell_rows.h"
#include "device/llama/llama_bridge.h"
#include "device/state/cuda_memory.h"
#include "kept/cell_store.h"

namespace unpaced {

class DeviceCellStore final : public CellStore {
 public:
  // `books` and `bridge` are of one context and outlive this.
  DeviceCellStore(CellStore& books, LlamaBridge& bridge);
  ~DeviceCellStore() override;

  // False: the rows are of another kind than the kernel copies.
  [[nodiscard]] static bool can_copy(const LlamaBridge& bridge);

  [[nodiscard]] std::int32_t n_cells() const noexcept override { return books_.n_cells(); }
  [[nodiscard]] std::int32_t n_parked() const noexcept override { return books_.n_parked(); }
  [[nodiscard]] std::int32_t n_taken(std::span<const Slot> slots) const noexcept override {
    return books_.n_taken(slots);
  }
  [[nodiscard]] const PrefixIndex& index() const noexcept override { return books_.index(); }
  [[nodiscard]] bool is_full() const noexcept override { return books_.is_full(); }
  [[nodiscard]] bool copies_early() const noexcept override { return true; }
  void measure(const Slot& slot) override { static_cast<void>(slot); }
  [[nodiscard]] std::size_t part_bytes(std::int32_t n) const noexcept override {
    return cell_bytes_ * static_cast<std::size_t>(n);
  }
  [[nodiscard]] std::int32_t n_part_max() const noexcept override { return n_part_max_; }
  [[nodiscard]] std::int32_t park(Slot& slot) override;
  [[nodiscard]] bool holds(std::int32_t ticket) const noexcept override {
    return books_.holds(ticket);
  }
  void unpark(std::int32_t ticket) noexcept override { books_.unpark(ticket); }
  [[nodiscard]] std::int32_t sequence_of(std::int32_t ticket) const noexcept override {
    return books_.sequence_of(ticket);
  }
  [[nodiscard]] std::span<const std::uint32_t> part_rows() const noexcept override {
    return part_rows_;
  }
  [[nodiscard]] std::vector<std::byte> sample_state(const Slot& slot) override;
  [[nodiscard]] bool copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                               std::span<std::byte> to) override;
  [[nodiscard]] bool restore_part(Slot& slot, std::span<const TokenId> tokens,
                                  std::span<const std::byte> part) override;
  void lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override {
    books_.lend(ticket, slot, tokens);
  }
  void share(const Slot& from, Slot& to, std::int32_t n) override { books_.share(from, to, n); }
  void give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override {
    books_.give_back(ticket, slot, tokens);
  }
  void discard(Slot& slot) noexcept override { books_.discard(slot); }
  void cut(Slot& slot, std::int32_t n_keep) noexcept override { books_.cut(slot, n_keep); }
  bool sweep() noexcept override { return books_.sweep(); }
  [[nodiscard]] std::int64_t take_waited_us() noexcept override {
    return std::exchange(waited_us_, 0);
  }

 private:
  // What was computed last is in its cells.
  void await_context();
  void copy(RowCopy direction, std::int32_t n);

  CellStore& books_;
  LlamaBridge& bridge_;
  const std::vector<CellRows> host_rows_;
  const std::vector<std::uint32_t> part_rows_;
  const std::size_t cell_bytes_;
  const std::int32_t n_part_max_;
  DeviceArray<CellRows> rows_;
  PinnedArray<std::int32_t> cells_;
  PinnedArray<std::byte> packed_;
  cudaStream_t stream_ = nullptr;
  std::int64_t waited_us_ = 0;
};

}  // namespace unpaced
