// Which KV cells are a sequence's, where llama.cpp keeps that: changed without moving any row.
#pragma once

#include <llama.h>

namespace unpaced {

// By llama.h, whose calls go through all cells of the context, whatever the sequence has: 0.1 ms
// for 32768 of them. Decode thread only; models whose cells can be cut by position.
class SequenceCells {
 public:
  explicit SequenceCells(llama_context* context) : memory_(llama_get_memory(context)) {}
  SequenceCells(const SequenceCells&) = delete;
  SequenceCells& operator=(const SequenceCells&) = delete;
  virtual ~SequenceCells() = default;

  // Cells at positions [first, last) are not the sequence's any more; last < 0: all from first on.
  void remove(llama_seq_id sequence, llama_pos first, llama_pos last = -1) noexcept;
  // Cells of `from` at positions [first, last) are also `to`'s, which is of the same stream and has
  // none there. Takes memory for each.
  virtual void share(llama_seq_id from, llama_seq_id to, llama_pos first, llama_pos last);
  // Nothing is kept in any cell: the search for free ones begins at the first of the sequence's
  // stream again.
  virtual void search_anew(llama_seq_id sequence) noexcept;

 protected:
  virtual void remove_any(llama_seq_id sequence, llama_pos first, llama_pos last) noexcept;

 private:
  const llama_memory_t memory_;
};

}  // namespace unpaced
