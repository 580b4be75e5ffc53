// Watches one request's text for its stop strings, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "stop_strings.h"

namespace unpaced {

// Made by the front end, used by the decode thread: accept() does not allocate.
class StopMatcher {
 public:
  StopMatcher() = default;  // no stop strings
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops)
      : stops_(std::move(stops)), matched_(stops_->n_words()) {}

  [[nodiscard]] bool empty() const noexcept { return stops_ == nullptr; }

  // One more token of the answer. True: the text holds a stop string now.
  bool accept(TokenId token) noexcept {
    return stops_ != nullptr && stops_->advance(token, matched_);
  }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint64_t> matched_;
};

}  // namespace unpaced
