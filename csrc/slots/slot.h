// A seat for one sequence: its cells are what its llama.cpp sequence holds in the KV. Decode thread
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "request/request.h"

namespace unpaced {

enum class SlotPhase : std::uint8_t {
  kIdle = 0,
  kSeating,  // has a request, which begins when what it reuses is there
  kPrefill,
  kRecompute,  // gave its cells to another request in the middle of its text, and computes them
               // anew
  kDecode
};

// What a slot action that takes several turns does with a slot meanwhile.
enum class SlotMove : std::uint8_t { kNone = 0, kOut, kIn };

// How long a request has waited since it has its slot.
struct SlotWaits {
  std::int64_t begin_us = 0;        // steady clock: when it got the slot
  std::int64_t copy_us = 0;         // until what others left there was out of its way
  std::int64_t cells_us = 0;        // for cells, before cells_since_us
  std::int64_t cells_since_us = 0;  // steady clock; 0: it waits for none
};

struct Slot {
  std::int32_t id = 0;
  // The llama.cpp sequence that holds its cells: at first its id, another one where a CellStore has
  // parked what it held.
  std::int32_t sequence = 0;
  SlotPhase phase = SlotPhase::kIdle;
  SlotMove move = SlotMove::kNone;  // while phase is kIdle
  // On loan from the front end while phase is not kIdle.
  RequestSpec* spec = nullptr;
  // Tokens in the KV, in order; capacity is reserved for the whole context. Kept after the request
  // ends: the next one reuses the common prefix.
  std::vector<TokenId> cells;
  // What the cells were computed with: one scale for each adapter that is loaded.
  std::vector<float> lora_scales;
  // Whose they are: requests of other domains do not reuse them.
  CacheDomain cache_domain = 0;
  // Some of the cells were computed for another place, by a context shift or as a chunk that moved.
  bool has_moved_cells = false;
  // Of the first cells: they were computed in whole chunks of a prompt, each in a batch of its own
  // (EngineConfig::deterministic).
  std::int32_t n_exact = 0;
  // The request that filled the cells asked for no reuse: they are not copied to host memory.
  bool is_throwaway = false;
  std::int32_t n_decoded = 0;
  // Sampled but not yet in the KV: the next step's input.
  TokenId next_token = -1;
  std::int64_t last_token_us = 0;  // when the newest token was published; steady clock
  std::int32_t n_shifts = 0;       // context shifts of this request
  std::uint32_t next_sequence_number = 0;
  SlotWaits waits;  // of this request
  // Step at which the last request ended: the longest idle slot is taken first.
  std::uint64_t last_used_step = 0;

  [[nodiscard]] bool active() const noexcept { return phase != SlotPhase::kIdle; }
  // A request may have it.
  [[nodiscard]] bool is_free() const noexcept { return !active() && move == SlotMove::kNone; }
  // The next step computes something for it.
  [[nodiscard]] bool steps() const noexcept {
    return phase != SlotPhase::kIdle && phase != SlotPhase::kSeating;
  }
  // The request may reuse the cells.
  [[nodiscard]] bool is_of_use_to(const RequestSpec& request) const noexcept {
    return cache_domain == request.cache_domain && lora_scales == request.lora_scales;
  }
  [[nodiscard]] std::int32_t n_cells() const noexcept {
    return static_cast<std::int32_t>(cells.size());
  }
};

}  // namespace unpaced
