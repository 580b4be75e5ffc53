#include "connections/waiting_room.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace unpaced {
namespace {

constexpr std::size_t kFirstBytes = 16384;
constexpr int kLooks = 16;  // at those that have said nothing, for each one taken
constexpr int kQuickInARow = 3;

std::chrono::nanoseconds processor_time() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

template <typename T>
T read_as(const unsigned char* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

ClientAddress address_of(const sockaddr_storage& from) noexcept {
  if (from.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(from).sin_addr.s_addr;
  }
  if (from.ss_family != AF_INET6) return 0;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return read_as<std::uint32_t>(address.s6_addr + 12);
  return read_as<std::uint64_t>(address.s6_addr);
}

bool is_out_of_files(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// What it has sent is read before: else its system drops the answer with the connection.
void answer(int fd, std::string_view text) noexcept {
  std::array<char, 4 * kFirstBytes> forgotten;  // NOLINT: only written to
  (void)::recv(fd, forgotten.data(), forgotten.size(), MSG_DONTWAIT);
  (void)::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

WaitingRoom::WaitingRoom(std::size_t n_max, std::string refusal)
    : n_max_(n_max), refusal_(std::move(refusal)) {}

WaitingRoom::~WaitingRoom() { dismiss({}); }

Arrivals WaitingRoom::accept(int listener, std::chrono::nanoseconds limit) {
  Arrivals arrivals;
  const auto ends = processor_time() + limit;
  do {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {  // mostly that nobody is left; others are of one connection
      arrivals.are_files_missing = is_out_of_files(errno);
      break;
    }
    if (!add({fd, address_of(from)}, arrivals.n_refused < kTold)) ++arrivals.n_refused;
  } while (processor_time() < ends);
  return arrivals;
}

std::optional<Served> WaitingRoom::take() {
  look_at_silent();
  if (size() == 0) return std::nullopt;
  const bool is_works_turn = n_quick_in_a_row_ >= kQuickInARow;
  const bool is_work = !work_.empty() && (is_works_turn || quick_.empty());
  n_quick_in_a_row_ = is_work ? 0 : n_quick_in_a_row_ + 1;
  AddressTurns& other = quick_.empty() ? silent_ : quick_;
  Served next{.fd = (is_work ? work_ : other).pop().fd};
  std::array<char, kFirstBytes> bytes;  // NOLINT: recv says how many were written
  const auto n_bytes = ::recv(next.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  // Nothing has come yet, or whoever reads next finds out why.
  if (n_bytes > 0) next.first_bytes.assign(bytes.data(), static_cast<std::size_t>(n_bytes));
  return next;
}

void WaitingRoom::dismiss(std::string_view text) {
  for (AddressTurns* queue : {&quick_, &work_, &silent_}) {
    for (const int fd : queue->take_all()) {
      if (!text.empty()) answer(fd, text);
      ::close(fd);
    }
  }
}

bool WaitingRoom::add(Waiting connection, bool is_told) {
  AddressTurns& queue = queue_of(connection.fd);
  queue.push(connection);
  if (queue.size() <= n_max_) return true;
  const int superfluous = queue.drop_from_most(&queue == &silent_);
  if (is_told) answer(superfluous, refusal_);
  ::close(superfluous);
  return false;
}

// Whether some of them have spoken meanwhile: most do so at once.
void WaitingRoom::look_at_silent() {
  for (int n = std::min(kLooks, static_cast<int>(silent_.size())); n > 0; --n) {
    const Waiting connection = silent_.pop();
    queue_of(connection.fd).push(connection);
  }
}

AddressTurns& WaitingRoom::queue_of(int fd) {
  std::array<char, 4> start{};
  const auto n_bytes = ::recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
  // Who has been reset is found out by whoever takes it.
  if (n_bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? silent_ : work_;
  const std::string_view method(start.data(), static_cast<std::size_t>(n_bytes));
  return method == "GET " || method == "HEAD" ? quick_ : work_;
}

}  // namespace unpaced
