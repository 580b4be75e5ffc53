// A prompt without a slot: its tokens, and what a slot held for them, in host memory in parts or on
// its way there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/token.h"
#include "kept/cell_store.h"

namespace unpaced {

// Bytes of cells that follow one another; what is in them is between a stepper and itself.
struct StatePart {
  std::unique_ptr<std::byte[]> data;
  std::size_t capacity = 0;  // bytes of `data`
  std::size_t n_bytes = 0;   // of them in use
  std::int32_t n_cells = 0;

  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data.get(), n_bytes}; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data.get(), n_bytes}; }
};

struct KeptState {
  std::vector<TokenId> tokens;
  std::vector<float> lora_scales;  // as Slot has them
  CacheDomain cache_domain = 0;    // as Slot has it
  bool has_moved_cells = false;    // as Slot has it
  std::int32_t n_exact = 0;        // as Slot has it
  std::size_t n_bytes = 0;         // when it is there as a whole
  std::vector<StatePart> parts;    // from the first cell on
  std::int32_t n_copied = 0;       // cells of all parts
  // Where the cells are meanwhile; kNoTicket: all have been copied.
  std::int32_t ticket = CellStore::kNoTicket;

  // All of it is in its parts.
  [[nodiscard]] bool is_copied() const noexcept {
    return static_cast<std::size_t>(n_copied) == tokens.size();
  }
};

}  // namespace unpaced
