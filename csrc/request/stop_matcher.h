// Watches one request's text for its stop strings, token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "request/stop_strings.h"

namespace unpaced {

// Made by the front end, used by the decode thread: accept() does not allocate.
class StopMatcher {
 public:
  StopMatcher() = default;  // no stop strings
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops)
      : stops_(std::move(stops)), matched_(stops_->n_words()) {}

  [[nodiscard]] bool empty() const noexcept { return stops_ == nullptr; }

  // One more token of the answer. Where the text holds a stop string now, its bytes from the
  // earliest one's beginning to its end; 0: it holds none.
  std::size_t accept(TokenId token) noexcept {
    return stops_ == nullptr ? 0 : stops_->advance(token, matched_);
  }
  // True if the text ends in the beginning of a stop string.
  [[nodiscard]] bool may_become_stop() const noexcept {
    return std::any_of(matched_.begin(), matched_.end(), [](std::uint64_t bits) { return bits; });
  }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint64_t> matched_;
};

}  // namespace unpaced
