#include "device/lane/mask_boards.h"

#include <exception>
#include <utility>

namespace unpaced {

MaskBoards::Owned::Owned(std::int32_t n_vocab)
    : memory(mask_board_words(n_vocab)), board({memory.data(), memory.size()}, memory.device()) {}

MaskBoards::MaskBoards(std::int32_t n_vocab, std::size_t n_ready, std::size_t n_max)
    : n_vocab_(n_vocab), n_max_(n_max) {
  owned_.reserve(n_max);
  for (std::size_t i = 0; i < n_ready; ++i) owned_.push_back(std::make_shared<Owned>(n_vocab));
}

std::shared_ptr<MaskBoard> MaskBoards::lend() {
  std::shared_ptr<Owned> free;
  for (const auto& one : owned_) {
    // acquire: pairs with the release below; nobody writes to the board any more.
    if (one->is_lent.load(std::memory_order_acquire)) continue;
    free = one;
    break;
  }
  if (free == nullptr) {
    if (owned_.size() >= n_max_) return nullptr;
    try {
      free = std::make_shared<Owned>(n_vocab_);
    } catch (const std::exception&) {
      return nullptr;
    }
    owned_.push_back(free);
  }
  free->is_lent.store(true, std::memory_order_relaxed);
  free->board.clear();
  MaskBoard* board = &free->board;
  return {board, [owner = std::move(free)](MaskBoard*) {
            owner->is_lent.store(false, std::memory_order_release);
          }};
}

}  // namespace unpaced
