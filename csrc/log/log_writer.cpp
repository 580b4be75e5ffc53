#include "log/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/futex.h"

namespace unpaced {

void write_text(int file, std::string_view text, int limit_ms) noexcept {
  while (file >= 0 && !text.empty()) {
    pollfd ready{file, POLLOUT, 0};
    if (limit_ms >= 0 && ::poll(&ready, 1, limit_ms) <= 0) return;
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // somebody else has made it so
      if (::poll(&ready, 1, limit_ms) <= 0) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

void LogWriter::queue(std::size_t max_bytes) {
  const std::lock_guard lock(mutex_);
  waiting_.reserve(max_bytes);
  writing_.reserve(max_bytes);
  max_bytes_ = max_bytes;
}

std::int64_t LogWriter::write(std::string_view text) noexcept {
  std::unique_lock lock(mutex_);
  if (max_bytes_ == 0) {
    take_file();
    write_text(file_, text, -1);
    return 0;
  }
  if (!std::exchange(has_thread_, true)) std::thread([this] { run(); }).detach();
  if (waiting_.size() + text.size() > max_bytes_) {
    ++n_dropped_;
    ++n_untold_;
    return -1;
  }
  waiting_ += text;
  const std::int64_t n_untold = std::exchange(n_untold_, 0);
  lock.unlock();  // or the thread that wakes up waits for it, and has to be woken once more
  news_.notify_one();
  return n_untold;
}

void LogWriter::replace(int file) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_replaced_ && next_file_ >= 0) ::close(next_file_);
  next_file_ = file;
  is_replaced_ = true;
}

void LogWriter::take_file() noexcept {
  if (!std::exchange(is_replaced_, false)) return;
  if (file_ > STDERR_FILENO) ::close(file_);
  file_ = next_file_;
}

bool LogWriter::flush(std::chrono::milliseconds limit) noexcept {
  std::unique_lock lock(mutex_);
  return written_.wait_for(lock, limit, [this] { return waiting_.empty() && !is_writing_; });
}

std::uint64_t LogWriter::n_dropped() const noexcept {
  const std::lock_guard lock(mutex_);
  return n_dropped_;
}

void LogWriter::run() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    wait_until(news_, lock, [this] { return !waiting_.empty(); });
    std::swap(waiting_, writing_);
    take_file();
    is_writing_ = true;
    const int file = file_;
    lock.unlock();
    write_text(file, writing_, -1);
    writing_.clear();
    lock.lock();
    is_writing_ = false;
    if (waiting_.empty()) written_.notify_all();
  }
}

}  // namespace unpaced
