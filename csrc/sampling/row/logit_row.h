// One row of logits as the sampler sees it: the model's array, which is never written, with the
// pages that a bias or a penalty touches copied on their first write.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/candidates/candidates.h"
#include "sampling/row/vocabulary_kernels.h"

namespace unpaced {

// All memory is taken in the constructor. One thread.
class LogitRow {
 public:
  explicit LogitRow(std::int32_t n_vocab);

  std::int32_t n_vocab() const noexcept { return n_vocab_; }
  const VocabularyKernels& kernels() const noexcept { return kernels_; }

  // Starts on a new row of n_vocab logits, which must stay until the next bind. Reads every logit
  // once. Returns false if one is NaN or +inf; the row must not be used then.
  bool bind(const float* logits) noexcept;

  // The logit of a token in [0, n_vocab), for writing; neither NaN nor +inf may be written. Call
  // refresh() before anything else is asked.
  float& at(TokenId token) noexcept;
  void refresh() noexcept;

  // Bans every token without a bit: bit i % 32 of word i / 32 is token i's.
  void apply_mask(std::span<const std::uint32_t> words) noexcept;

  // All n_vocab logits as one writable array. Call rescan() after.
  float* flatten() noexcept;
  void rescan() noexcept;

  // The best logit, -inf if every token is banned.
  float max() const noexcept { return max_; }

  // Page i: kPageFloats logits from token i * kPageFloats on, padded with -inf at the end.
  std::int32_t n_pages() const noexcept { return n_pages_; }
  const float* page(std::int32_t i) const noexcept {
    return copied_[i] ? own_page(i) : raw_page(i);
  }

  // Replaces the candidates by the k best tokens, in descending order, banned ones at the end. k
  // >= 1.
  void select_top(std::int32_t k, Candidates& out) noexcept;

  // Replaces the candidates by every token whose logit reaches the threshold, which is finite, in
  // ascending order of tokens; p is not set.
  void select_reaching(float threshold, Candidates& out) noexcept;

 private:
  const float* own_page(std::int32_t i) const noexcept { return own_.data() + i * kPageFloats; }
  const float* raw_page(std::int32_t i) const noexcept { return raw_ + i * kPageFloats; }
  void copy_page(std::int32_t i) noexcept;
  void forget_copies() noexcept;
  std::int32_t count_reaching(float threshold, bool by_lane) const noexcept;
  float threshold_of_top(std::int32_t k) const noexcept;
  void append_banned(std::int32_t n, Candidates& out) const noexcept;

  const VocabularyKernels& kernels_;
  std::int32_t n_vocab_;
  std::int32_t n_pages_;  // the last one may be partly outside the vocabulary
  const float* raw_ = nullptr;
  float max_ = 0.0F;
  std::vector<float> own_;                  // room for a copy of every page
  std::vector<std::uint8_t> copied_;        // whether page i is in own_
  std::vector<std::int32_t> copied_pages_;  // those that are
  std::int32_t n_copied_ = 0;
  std::vector<std::int32_t> found_pages_;  // scratch of select_reaching
  std::vector<float> maxima_;              // best of each of the kLanes lanes of each page
};

}  // namespace unpaced
