// The frames of a stream whose events hold its tokens' text and numbers, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/token.h"

namespace unpaced {

// What stands between two literals of a frame. engine_ext/sequence/token_frames.py mirrors it.
enum class FrameField : std::uint8_t {
  kText = 0,  // what the token made final, a JSON string
  kToken,     // its id
  kNumber,    // tokens decoded so far, this one included
};

struct FramePart {
  std::string literal;
  FrameField field;
};

// What every token's frame is made of.
struct FrameTemplate {
  std::vector<FramePart> parts;
  std::string end;           // the last literal
  bool skips_empty = false;  // a token that makes no text final has no frame
  bool keeps_text = false;   // see take_text()
};

// Every token's bytes, wherever they are kept; they outlive the frames.
struct PieceTable {
  std::string_view (*piece_of)(const void* table, TokenId token) noexcept = nullptr;
  const void* table = nullptr;
  std::size_t n = 0;
};

// Where a sequence stands when its tokens begin, or cease, to be written here.
struct SequenceState {
  std::string partial;         // the beginning of a UTF-8 sequence, which the last token ended in
  std::int32_t n_decoded = 0;  // tokens
  std::int64_t last_us = 0;    // when the last one was decoded, steady clock
  bool has_new_line = false;
};

// A token costs no Python object and no line of Python, and nobody needs the GIL. While it has the
// connection frames leave by send(); any thread.
class TokenFrames {
 public:
  // `gaps`: counts the seconds between tokens.
  TokenFrames(PieceTable pieces, FrameTemplate form, SequenceState state,
              std::shared_ptr<Histogram> gaps);
  ~TokenFrames();
  TokenFrames(const TokenFrames&) = delete;
  TokenFrames& operator=(const TokenFrames&) = delete;

  // False, and nothing has happened: there is no such token.
  [[nodiscard]] bool add(TokenId token, std::int32_t n_decoded, std::int64_t t_us);

  // Whether there is something to take.
  [[nodiscard]] bool has_news() const;
  // The frames that have come since the last time. Call detach() before.
  [[nodiscard]] std::string take();
  // What is to be written to the connection, which wants it as chunks of an HTTP body in chunked
  // coding; "" if there is nothing, or who has the connection will send it.
  [[nodiscard]] std::string take_chunk();
  // Their text, if it is kept.
  [[nodiscard]] std::string take_text();
  [[nodiscard]] SequenceState state() const;
  // When the token of the newest frame was decoded, or the last one before all frames.
  [[nodiscard]] std::int64_t written_us() const;

  // The connection's socket, of which this has a descriptor of its own, so that it may be closed
  // meanwhile. All that was written to it has left this process's hands. What there is is sent at
  // once. False: the client is behind or gone, and what there is is to be taken; or there are no
  // more descriptors.
  [[nodiscard]] bool attach(int socket);
  // From here on nothing is sent. Returns what is to be written next, as it is: a client that reads
  // slowly may have got one part of a chunk.
  [[nodiscard]] std::string detach();
  // The same, and what is to be written is there to take.
  void let_go();
  // Sends what there is, if it has the connection. False: it no longer has it, since the client is
  // behind or gone.
  [[nodiscard]] bool send();

 private:
  // What the token makes final: whole characters, and U+FFFD for what is none.
  [[nodiscard]] std::string_view push(std::string_view piece);
  // All of it is for who has taken the mutex.
  [[nodiscard]] std::string chunks();
  [[nodiscard]] bool send_locked();
  void close_socket() noexcept;

  const PieceTable pieces_;
  const FrameTemplate form_;
  const std::shared_ptr<Histogram> gaps_;
  mutable std::mutex mutex_;  // guards what follows
  SequenceState state_;
  std::string decoded_;  // the text of the last push(), where it is not the piece
  std::string frames_;
  std::string unsent_;  // what a client that is behind has not got of a chunk
  std::int64_t written_us_;
  std::string text_;
  int socket_ = -1;
};

}  // namespace unpaced
