// Requests that wait for a slot, first come, first served. Decode thread only; all memory is taken
// in the constructor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "request/request.h"

namespace unpaced {

class RequestQueue {
 public:
  explicit RequestQueue(std::size_t capacity) { specs_.reserve(capacity); }

  // False: full.
  [[nodiscard]] bool push(RequestSpec* spec) noexcept {
    if (specs_.size() == specs_.capacity()) return false;
    specs_.push_back(spec);
    return true;
  }
  // nullptr: empty.
  [[nodiscard]] RequestSpec* front() const noexcept {
    return specs_.empty() ? nullptr : specs_.front();
  }
  void pop() noexcept { specs_.erase(specs_.begin()); }
  // By place in the queue, from 0.
  [[nodiscard]] RequestSpec* at(std::size_t i) const noexcept { return specs_[i]; }
  void take(std::size_t i) noexcept {
    specs_.erase(specs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // Takes the request out of the queue; nullptr: it is not there.
  [[nodiscard]] RequestSpec* remove(RequestId id) noexcept {
    const auto it = std::find_if(specs_.begin(), specs_.end(),
                                 [id](const RequestSpec* spec) { return spec->id == id; });
    if (it == specs_.end()) return nullptr;
    RequestSpec* spec = *it;
    specs_.erase(it);
    return spec;
  }
  [[nodiscard]] std::size_t size() const noexcept { return specs_.size(); }

 private:
  std::vector<RequestSpec*> specs_;
};

}  // namespace unpaced
