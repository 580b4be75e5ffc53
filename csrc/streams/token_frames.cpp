#include "streams/token_frames.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/json_text.h"
#include "streams/utf8_text.h"

namespace unpaced {
namespace {

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char character) { return static_cast<signed char>(character) >= 0; });
}

}  // namespace

TokenFrames::TokenFrames(PieceTable pieces, FrameTemplate form, SequenceState state,
                         std::shared_ptr<Histogram> gaps)
    : pieces_(pieces),
      form_(std::move(form)),
      gaps_(std::move(gaps)),
      state_(std::move(state)),
      written_us_(state_.last_us) {}

TokenFrames::~TokenFrames() { close_socket(); }

bool TokenFrames::add(TokenId token, std::int32_t n_decoded, std::int64_t t_us) {
  if (token < 0 || static_cast<std::size_t>(token) >= pieces_.n) return false;
  const std::lock_guard lock(mutex_);
  gaps_->observe(static_cast<double>(t_us - state_.last_us) * 1e-6);
  state_.last_us = t_us;
  state_.n_decoded = n_decoded;
  const std::string_view text = push(pieces_.piece_of(pieces_.table, token));
  state_.has_new_line = state_.has_new_line || text.find('\n') != std::string_view::npos;
  if (form_.keeps_text) text_ += text;
  if (form_.skips_empty && text.empty()) return true;
  written_us_ = t_us;
  for (const FramePart& part : form_.parts) {
    frames_ += part.literal;
    switch (part.field) {
      case FrameField::kText:
        append_json(frames_, text);
        break;
      case FrameField::kToken:
        frames_ += std::to_string(token);
        break;
      case FrameField::kNumber:
        frames_ += std::to_string(n_decoded);
        break;
    }
  }
  frames_ += form_.end;
  return true;
}

std::string_view TokenFrames::push(std::string_view piece) {
  if (state_.partial.empty() && is_ascii(piece)) return piece;
  state_.partial += piece;
  decoded_.clear();
  take_characters(state_.partial, decoded_);
  return decoded_;
}

bool TokenFrames::has_news() const {
  const std::lock_guard lock(mutex_);
  return socket_ < 0 && !(frames_.empty() && unsent_.empty());
}

std::string TokenFrames::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(frames_, {});
}

std::string TokenFrames::chunks() {
  std::string all = std::exchange(unsent_, {});
  if (frames_.empty()) return all;
  std::array<char, 2 * sizeof(std::size_t) + 2> head{};
  char* end = std::to_chars(head.begin(), head.end(), frames_.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  all.append(head.data(), static_cast<std::size_t>(end - head.data()));
  all += frames_;
  all += "\r\n";
  frames_.clear();
  return all;
}

std::string TokenFrames::take_chunk() {
  const std::lock_guard lock(mutex_);
  return socket_ < 0 ? chunks() : std::string();
}

std::string TokenFrames::take_text() {
  const std::lock_guard lock(mutex_);
  return std::exchange(text_, {});
}

SequenceState TokenFrames::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::int64_t TokenFrames::written_us() const {
  const std::lock_guard lock(mutex_);
  return written_us_;
}

bool TokenFrames::attach(int socket) {
  const std::lock_guard lock(mutex_);
  close_socket();
  socket_ = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
  return socket_ >= 0 && send_locked();
}

std::string TokenFrames::detach() {
  const std::lock_guard lock(mutex_);
  close_socket();
  return std::exchange(unsent_, {});
}

void TokenFrames::let_go() {
  const std::lock_guard lock(mutex_);
  close_socket();
}

bool TokenFrames::send() {
  const std::lock_guard lock(mutex_);
  return send_locked();
}

bool TokenFrames::send_locked() {
  if (socket_ < 0) return false;
  std::string all = chunks();
  if (all.empty()) return true;
  ssize_t n = 0;
  do {
    n = ::send(socket_, all.data(), all.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  const auto n_sent = n < 0 ? 0 : static_cast<std::size_t>(n);
  if (n_sent == all.size()) return true;
  // Whatever is wrong with the connection, its owner finds out as it goes on.
  unsent_ = all.substr(n_sent);
  close_socket();
  return false;
}

void TokenFrames::close_socket() noexcept {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

}  // namespace unpaced
