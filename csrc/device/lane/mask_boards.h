// Mask boards that the GPU can read: pinned memory, lent to requests with a grammar.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/state/cuda_memory.h"
#include "grammar/mask_board.h"

namespace unpaced {

// Decode thread only; what it lends may be given back by any thread. A board is lent as long as
// anybody may write to it: a grammar's worker ends later than its request.
class MaskBoards {
 public:
  // n_max: boards at most, of 17 KB each with a vocabulary of 128 256 tokens. The first n_ready are
  // made now, others when they are wanted.
  MaskBoards(std::int32_t n_vocab, std::size_t n_ready, std::size_t n_max);

  // A board that has nothing written on it; null: all are lent, or there is no memory for another.
  [[nodiscard]] std::shared_ptr<MaskBoard> lend();

 private:
  struct Owned {
    explicit Owned(std::int32_t n_vocab);

    PinnedArray<std::uint32_t> memory;
    MaskBoard board;
    std::atomic<bool> is_lent{false};
  };

  const std::int32_t n_vocab_;
  const std::size_t n_max_;
  std::vector<std::shared_ptr<Owned>> owned_;
};

}  // namespace unpaced
