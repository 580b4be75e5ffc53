// Memory for values that are not all wanted at the same time.
#pragma once

#include <cstddef>
#include <vector>

namespace unpaced {

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t alignment) : alignment_(alignment) {}

  // Of a value that is wanted from one time to another, both included: no byte of it is another's
  // whose times overlap. Counted from the memory's begin.
  [[nodiscard]] std::size_t place(std::size_t n_bytes, std::size_t from, std::size_t until);
  [[nodiscard]] std::size_t n_bytes() const noexcept { return n_bytes_; }

 private:
  struct Placed {
    std::size_t begin, end, from, until;
  };

  const std::size_t alignment_;
  std::vector<Placed> placed_;  // by their begin
  std::size_t n_bytes_ = 0;
};

}  // namespace unpaced
