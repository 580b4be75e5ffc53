#include "kept/sequence_cells.h"

#include <limits>

namespace unpaced {

void SequenceCells::remove(llama_seq_id sequence, llama_pos first, llama_pos last) noexcept {
  if (llama_memory_seq_pos_max(memory_, sequence) < first) return;
  remove_any(sequence, first, last < 0 ? std::numeric_limits<llama_pos>::max() : last);
}

void SequenceCells::remove_any(llama_seq_id sequence, llama_pos first, llama_pos last) noexcept {
  llama_memory_seq_rm(memory_, sequence, first, last);
}

void SequenceCells::search_anew(llama_seq_id sequence) noexcept {
  if (llama_memory_can_shift(memory_)) {
    // Moves nothing. Clearing all cells takes longer.
    llama_memory_seq_add(memory_, sequence, 0, -1, 1);
  } else {
    llama_memory_clear(memory_, false);
  }
}

void SequenceCells::share(llama_seq_id from, llama_seq_id to, llama_pos first, llama_pos last) {
  llama_memory_seq_cp(memory_, from, to, first, last);
}

}  // namespace unpaced
