// What a slot holds, copied out of the KV: its tokens and llama.cpp's bytes for them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "request/records.h"
#include "slots/state_pieces.h"

namespace unpaced {

struct SlotState {
  std::vector<TokenId> tokens;
  std::vector<float> lora_scales;     // as Slot has them
  CacheDomain cache_domain = 0;       // as Slot has it
  std::int32_t n_exact = 0;           // as Slot has it; of a file's state nobody knows
  std::unique_ptr<std::byte[]> data;  // as llama_state_seq_get_data writes them
  std::size_t n_bytes = 0;
  std::optional<StatePieces> pieces;  // where it is known to be sound, and can be cut

  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data.get(), n_bytes}; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data.get(), n_bytes}; }
  // Throws std::bad_alloc. Not zeroed: every byte is written over.
  void allocate(std::size_t n) {
    data = std::make_unique_for_overwrite<std::byte[]>(n);
    n_bytes = n;
  }
};

}  // namespace unpaced
