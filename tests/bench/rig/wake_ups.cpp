// What it costs a machine to wake a thread up and to send a token, without a model, without the
// engine: the least CPU a token that a loop which sleeps between two tokens can have there.
//
//   c++ -O2 -std=c++20 -pthread wake_ups.cpp && ./a.out [MICROSECONDS ...]
//
// A thread sleeps until each multiple of the given times, as the decode thread does, and wakes
// another one by a futex, which sends 220 bytes to a client on the same machine, as the writer
// does; or it sends them itself. Each has a core of its own. A line is CPU microseconds a turn of
// each thread, and how late the first one woke up.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr int kTurns = 2000;
enum class Sends { kNobody, kOther, kItself };

double us_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core % static_cast<int>(std::thread::hardware_concurrency())),
          &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// A connection of which a child process reads the other end.
struct Client {
  int socket = -1;
  pid_t reader = 0;

  Client() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* its = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, its, length) != 0 || listen(listener, 1) != 0) std::abort();
    getsockname(listener, its, &length);
    reader = fork();
    if (reader == 0) {
      pin(3);
      const int end = ::socket(AF_INET, SOCK_STREAM, 0);
      if (connect(end, its, length) != 0) _exit(1);
      std::array<char, 4096> received{};
      while (recv(end, received.data(), received.size(), 0) > 0) {
      }
      _exit(0);
    }
    socket = accept(listener, nullptr, nullptr);
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
  }
  ~Client() {
    close(socket);
    kill(reader, SIGKILL);
    waitpid(reader, nullptr, 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send() const {
    const std::array<char, 220> frame{};
    if (::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL) < 0) std::abort();
  }
};

void measure(long period_us, Sends sends, const char* name) {
  const Client client;
  std::atomic<int> turn{0};
  double others_us = 0;
  std::thread other([&] {
    pin(1);
    const double begin = us_of(CLOCK_THREAD_CPUTIME_ID);
    for (int seen = 0; seen < kTurns;) {
      turn.wait(seen);
      seen = turn.load();
      if (sends == Sends::kOther) client.send();
    }
    others_us = us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
  });
  std::vector<double> late;
  double own_us = 0;
  std::thread sleeper([&] {
    pin(2);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    const double begin = us_of(CLOCK_THREAD_CPUTIME_ID);
    timespec when{};
    clock_gettime(CLOCK_MONOTONIC, &when);
    for (int i = 1; i <= kTurns; ++i) {
      const long ns = when.tv_nsec + period_us * 1000;
      when = {.tv_sec = when.tv_sec + ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
      late.push_back(us_of(CLOCK_MONOTONIC) - static_cast<double>(when.tv_sec) * 1e6 -
                     static_cast<double>(when.tv_nsec) / 1e3);
      if (sends == Sends::kItself) client.send();
      if (sends != Sends::kOther && i < kTurns) continue;
      turn.store(i);
      turn.notify_one();
    }
    own_us = us_of(CLOCK_THREAD_CPUTIME_ID) - begin;
  });
  sleeper.join();
  other.join();
  std::ranges::sort(late);
  std::printf("every %ld us, %s: %.1f us, the other one %.1f us; late %.0f us, p99 %.0f us\n",
              period_us, name, own_us / kTurns, others_us / kTurns, late[kTurns / 2],
              late[kTurns * 99 / 100]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<long> periods;
  for (int i = 1; i < argc; ++i) periods.push_back(std::atol(argv[i]));
  if (periods.empty()) periods = {2000, 650};
  for (const long period_us : periods) {
    measure(period_us, Sends::kNobody, "sleeps");
    measure(period_us, Sends::kOther, "wakes another one, which sends");
    measure(period_us, Sends::kItself, "sends itself");
  }
  return 0;
}
