// Connections that wait, which client addresses take in turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace unpaced {

// Whom a connection is from: an IPv4 address or an IPv6 network of 64 bits, which is what one
// client has; 0 for Unix sockets.
using ClientAddress = std::uint64_t;

struct Waiting {
  int fd = -1;
  ClientAddress from = 0;
};

// Of each address the first one comes first, and no address waits for all connections of another.
class AddressTurns {
 public:
  void push(Waiting connection);
  // Of the address whose turn it is. At least one waits.
  Waiting pop();
  // Leaves out the newest of the address that has most; `oldest`: the oldest. At least one waits.
  int drop_from_most(bool oldest);
  // Everybody leaves.
  std::vector<int> take_all();

  [[nodiscard]] std::size_t size() const noexcept { return n_; }
  [[nodiscard]] bool empty() const noexcept { return n_ == 0; }

 private:
  std::unordered_map<ClientAddress, std::deque<int>> of_;  // nobody's is empty
  std::deque<ClientAddress> turns_;                        // each of them once
  std::size_t n_ = 0;
};

}  // namespace unpaced
