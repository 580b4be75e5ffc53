// Connections that the server has accepted and does not serve yet: which one is next.
//
// Accepting must outrun whoever connects: the system hands connections out in the order in which
// they came, so a probe stands behind every one that is not accepted yet. That is why it is native
// code, and why what finds no room is refused here.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "connections/address_turns.h"

namespace unpaced {

struct Arrivals {
  int n_refused = 0;
  bool are_files_missing = false;  // no descriptor was left for the next one
};

struct Served {
  int fd = -1;              // the caller's from now on
  std::string first_bytes;  // what has come of its request
};

// Those that ask for a page, a probe or metrics come before those that want work done; work comes
// after three others at the latest. Those that have sent nothing yet need nothing yet: they come
// last. In each of the three, client addresses have turns. One thread's.
class WaitingRoom {
 public:
  // `n_max` may wait of each of the three; `refusal` is sent to those without room.
  WaitingRoom(std::size_t n_max, std::string refusal);
  ~WaitingRoom();
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  // Accepts until nobody waits at the listening socket, for `limit` of processor time at most, but
  // one. Who has no room is refused: the newest of the address with most, of those that have said
  // nothing the oldest. Of a burst `kTold` are told why, which takes as long as accepting them.
  Arrivals accept(int listener, std::chrono::nanoseconds limit);
  // The next one, if any.
  std::optional<Served> take();
  // Everybody gets this answer and leaves.
  void dismiss(std::string_view answer);

  [[nodiscard]] std::size_t size() const noexcept {
    return quick_.size() + work_.size() + silent_.size();
  }

  static constexpr int kTold = 64;

 private:
  AddressTurns& queue_of(int fd);
  bool add(Waiting connection, bool is_told);  // false: one was refused
  void look_at_silent();

  const std::size_t n_max_;
  const std::string refusal_;
  AddressTurns quick_;
  AddressTurns work_;
  AddressTurns silent_;
  int n_quick_in_a_row_ = 0;
};

}  // namespace unpaced
