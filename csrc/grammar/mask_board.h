// Where a sequence's masks lie for a drawer that looks for itself: the decode loop on a GPU, which
// finds the mask of a step there when it draws the step's token, and asks nobody.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unpaced {

// Words ahead of the mask, the first of which is the step that the mask is for.
inline constexpr std::size_t kMaskBoardHead = 32;
// The mask's own words come in runs of so many.
inline constexpr std::size_t kMaskBoardRun = 32;
inline constexpr std::uint32_t kNoMaskStep = UINT32_MAX;
// Of a step without a mask: it would take too long.
inline constexpr std::uint32_t kMaskLeftOut = 1U << 31U;

[[nodiscard]] constexpr std::size_t mask_board_words(std::int32_t n_vocab) noexcept {
  const std::size_t n = (static_cast<std::size_t>(n_vocab) + 31) / 32;
  return kMaskBoardHead + (n + kMaskBoardRun - 1) / kMaskBoardRun * kMaskBoardRun;
}

// One sequence's. There is room for one mask: the next one is written when the token of this one's
// step has been accepted, and who drew that token has no more use for the mask.
class MaskBoard {
 public:
  // memory: mask_board_words() of them, which outlive this. reader: the same as the drawer sees it.
  MaskBoard(std::span<std::uint32_t> memory, const std::uint32_t* reader) noexcept
      : memory_(memory), reader_(reader) {
    clear();
  }

  // While nobody writes or reads: for another sequence.
  void clear() noexcept {
    std::ranges::fill(memory_, 0U);
    memory_.front() = kNoMaskStep;
    lateness_ = 0;
    is_slow_.store(false, std::memory_order_relaxed);
  }

  // Worker: the mask of a step, one bit a token.
  void write(std::span<const std::uint32_t> mask, std::uint32_t step) noexcept {
    std::ranges::copy(mask, memory_.begin() + kMaskBoardHead);
    // release: pairs with the drawer's acquiring load of the step.
    std::atomic_ref(memory_.front()).store(step, std::memory_order_release);
  }

  // Worker: there will be no mask of this step, unless somebody asks.
  void leave_out(std::uint32_t step) noexcept {
    std::atomic_ref(memory_.front()).store(step | kMaskLeftOut, std::memory_order_release);
  }

  [[nodiscard]] const std::uint32_t* reader() const noexcept { return reader_; }

  // Drawing thread only: whether a step's mask was there when it was wanted.
  void count_in_time() noexcept {
    lateness_ -= lateness_ > 0 ? 1 : 0;
    if (lateness_ <= kLatest / 2) is_slow_.store(false, std::memory_order_relaxed);
  }
  void count_late() noexcept {
    lateness_ = std::min(lateness_ + kLateWeight, kLatest);
    if (lateness_ >= kLatest) is_slow_.store(true, std::memory_order_relaxed);
  }
  // Any thread. More than one mask in nine has come late for a while: asking for each is better,
  // until some eighty have been in time.
  [[nodiscard]] bool is_slow() const noexcept { return is_slow_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::int32_t kLateWeight = 8;
  // Twenty in a row: masks of places that a grammar has not seen are late at a text's beginning.
  static constexpr std::int32_t kLatest = 160;

  const std::span<std::uint32_t> memory_;
  const std::uint32_t* const reader_;
  std::int32_t lateness_ = 0;
  std::atomic<bool> is_slow_{false};
};

}  // namespace unpaced
