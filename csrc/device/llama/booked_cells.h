// The same as SequenceCells, by llama.cpp's list of each sequence's cells: only these are looked
// at.
#pragma once

#include "device/llama/llama_bridge.h"
#include "kept/sequence_cells.h"

namespace unpaced {

class BookedCells final : public SequenceCells {
 public:
  // `bridge` is the context's and outlives this.
  BookedCells(llama_context* context, LlamaBridge& bridge)
      : SequenceCells(context), bridge_(bridge) {}

  void share(llama_seq_id from, llama_seq_id to, llama_pos first, llama_pos last) override {
    bridge_.share(from, to, first, last);
  }
  void search_anew(llama_seq_id sequence) noexcept override { bridge_.search_anew(sequence); }

 protected:
  void remove_any(llama_seq_id sequence, llama_pos first, llama_pos last) noexcept override {
    bridge_.remove(sequence, first, last);
  }

 private:
  LlamaBridge& bridge_;
};

}  // namespace unpaced
