// What a step takes on this machine, learned from the steps' own times: so much where so many slots
// decode, and so much more for each prompt token beside them. Decode thread only; all memory is
// taken in the constructor.
#pragma once

#include <cstdint>
#include <vector>

#include "kept/size_cost.h"

namespace unpaced {

class StepCost {
 public:
  explicit StepCost(std::int32_t n_slots)
      : decode_us_(static_cast<std::size_t>(n_slots) + 1, 0.0) {}

  // A step of `us` microseconds is over: slots that decoded in it, prompt tokens that it computed.
  // A single step that something held up moves what is known by half of it at most.
  void observe(std::int32_t n_decoding, std::int32_t n_prompt, std::int64_t us) noexcept;

  // Microseconds of a step in which so many slots decode and nothing else is computed. Of a number
  // that no step has had: that of the next smaller one, else of the next larger one. 0: no step has
  // been seen.
  [[nodiscard]] double decode_us(std::int32_t n_decoding) const noexcept;
  // Microseconds that one prompt token adds to such a step; 0: none has been seen.
  [[nodiscard]] double prompt_token_us() const noexcept { return prompt_token_us_; }
  // Microseconds that so many prompt tokens add to a step in which so many slots decode, or that
  // they take as a step of their own: few take more time each than many. At most, or at least,
  // where such a step has not been seen; 0: none with a prompt has.
  [[nodiscard]] double most_us(std::int32_t n, std::int32_t n_decoding) const noexcept;
  [[nodiscard]] double least_us(std::int32_t n, std::int32_t n_decoding) const noexcept;
  // Of steps of prompts alone.
  [[nodiscard]] const SizeCost& alone() const noexcept { return alone_; }
  [[nodiscard]] std::uint64_t n_seen() const noexcept { return n_seen_; }

 private:
  std::vector<double> decode_us_;  // by the number of slots that decode
  double prompt_token_us_ = 0;
  bool has_seen_both_ = false;  // a step with a prompt beside slots that decode
  SizeCost alone_;              // a step's prompt tokens, and
  SizeCost beside_;             // those beside slots that decode
  std::uint64_t n_seen_ = 0;
};

}  // namespace unpaced
