#include "slots/slot_file.h"

#include <fcntl.h>
#include <llama.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "slots/kv_cells.h"
#include "slots/state_damage.h"

namespace unpaced {
namespace {

// What llama_state_seq_get_data puts in front of what the file holds (llama.cpp 0c1e57098
// src/llama-context.cpp:3189-3216): a magic number and the sequence's id, which is not looked at.
constexpr std::uint32_t kStateMagic = 0xaf143cd8;
constexpr std::size_t kStatePrefix = 8;
// llama-server's packed token list: marker, version, count, tokens, count of media chunks.
constexpr TokenId kPackedMarker = -1;
constexpr TokenId kPackedVersion = 1;
constexpr std::size_t kPackedWords = 4;

constexpr std::array<char, 8> kTrailerMagic{'U', 'N', 'P', 'A', 'C', 'E', 'D', '1'};

// The first cell's sequence id in files of ours: a trailer follows. No slot has such a number.
constexpr std::uint32_t kTrailerMark = 0x55445031;

struct Trailer {
  std::array<char, 8> magic;
  std::uint64_t n_tokens;
  std::uint64_t n_state_bytes;
  std::uint64_t model;
  std::uint64_t checksum;  // of tokens and state
};
static_assert(sizeof(Trailer) == 40);

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& what) {
  throw SlotFileError(what + ": " + std::strerror(errno));
}

int open_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("cannot open the slot save path");
  return fd;
}

void write_all(int fd, const void* data, std::size_t n) {
  const char* at = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t n_written = ::write(fd, at, n);
    if (n_written < 0 && errno != EINTR) fail("cannot write the slot file");
    if (n_written <= 0) continue;
    at += n_written;
    n -= static_cast<std::size_t>(n_written);
  }
}

void read_all(int fd, void* data, std::size_t n) {
  char* at = static_cast<char*>(data);
  while (n > 0) {
    const ssize_t n_read = ::read(fd, at, n);
    if (n_read < 0 && errno != EINTR) fail("cannot read the slot file");
    if (n_read == 0) throw SlotFileError("the slot file is cut short");
    if (n_read < 0) continue;
    at += n_read;
    n -= static_cast<std::size_t>(n_read);
  }
}

// FNV-1a, eight bytes at a time: finds damage, not forgery.
std::uint64_t add_to_checksum(std::uint64_t sum, const void* data, std::size_t n) noexcept {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  const char* at = static_cast<const char*>(data);
  for (; n >= 8; n -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    sum = (sum ^ word) * kPrime;
  }
  for (; n > 0; --n, ++at) sum = (sum ^ static_cast<unsigned char>(*at)) * kPrime;
  return sum;
}

// What the file holds of a state.
std::span<const std::byte> filed(const SlotState& state) noexcept {
  return state.bytes().subspan(kStatePrefix);
}

std::uint64_t checksum_of(const SlotState& state) noexcept {
  constexpr std::uint64_t kBasis = 0xcbf29ce484222325;
  const std::uint64_t sum =
      add_to_checksum(kBasis, state.tokens.data(), state.tokens.size() * sizeof(TokenId));
  return add_to_checksum(sum, filed(state).data(), filed(state).size());
}

void mark(SlotState& state) {
  const auto cells = find_kv_cells(filed(state), 0, state.tokens.size());
  if (!cells) return;
  std::memcpy(state.data.get() + kStatePrefix + cells->sequence_id(), &kTrailerMark,
              sizeof kTrailerMark);
}

bool is_marked(const SlotState& state) {
  const auto cells = find_kv_cells(filed(state), 0, state.tokens.size());
  std::uint32_t found = 0;
  if (cells) std::memcpy(&found, filed(state).data() + cells->sequence_id(), sizeof found);
  return found == kTrailerMark;
}

// A state without a trailer: throws where it should have one, or cannot be right.
void check_untold(const SlotState& state) {
  if (is_marked(state)) throw SlotFileError("the slot file is cut short, or its end is damaged");
  const std::string damage = damage_of(filed(state), state.tokens.size());
  if (!damage.empty()) throw SlotFileError(damage);
}

// The token list of either form.
std::vector<TokenId> unpack(std::vector<TokenId> words) {
  if (words.empty() || words[0] != kPackedMarker) return words;  // plain, of older servers
  if (words.size() < kPackedWords || words[1] != kPackedVersion) {
    throw SlotFileError("the slot file's token list has an unknown version");
  }
  const auto n = static_cast<std::size_t>(static_cast<std::uint32_t>(words[2]));
  if (n > words.size() - kPackedWords || words[3 + n] != 0 || words.size() != n + kPackedWords) {
    throw SlotFileError("the slot file's token list is damaged, or holds other than text");
  }
  return {words.begin() + 3, words.begin() + 3 + static_cast<std::ptrdiff_t>(n)};
}

void check_tokens(std::span<const TokenId> tokens, const SlotFileLimits& limits) {
  if (tokens.size() > static_cast<std::size_t>(limits.n_ctx)) {
    throw SlotFileError("the slot file holds " + std::to_string(tokens.size()) +
                        " tokens, a slot of this server " + std::to_string(limits.n_ctx));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= limits.n_vocab) {
      throw SlotFileError("the slot file holds tokens that the model does not have");
    }
  }
}

}  // namespace

std::size_t write_slot_file(const std::string& directory, const std::string& name, SlotState& state,
                            std::uint64_t model) {
  if (state.n_bytes < kStatePrefix) throw SlotFileError("there is no state to write");
  const File folder(open_directory(directory));
  struct stat status{};
  if (::fstatat(folder.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISREG(status.st_mode)) {
    throw SlotNameError("the slot file's name is that of something other than a file");
  }
  const std::string draft = ".unpaced-" + std::to_string(std::random_device{}());
  const int fd = ::openat(folder.fd(), draft.c_str(),
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot write to the slot save path");
  try {
    const File file(fd);
    mark(state);
    const auto n_tokens = static_cast<std::uint32_t>(state.tokens.size());
    const std::array<std::uint32_t, 6> head{LLAMA_STATE_SEQ_MAGIC,
                                            LLAMA_STATE_SEQ_VERSION,
                                            n_tokens + static_cast<std::uint32_t>(kPackedWords),
                                            static_cast<std::uint32_t>(kPackedMarker),
                                            static_cast<std::uint32_t>(kPackedVersion),
                                            n_tokens};
    const std::uint32_t n_media = 0;
    const Trailer trailer{.magic = kTrailerMagic,
                          .n_tokens = n_tokens,
                          .n_state_bytes = state.n_bytes - kStatePrefix,
                          .model = model,
                          .checksum = checksum_of(state)};
    write_all(fd, head.data(), sizeof head);
    write_all(fd, state.tokens.data(), state.tokens.size() * sizeof(TokenId));
    write_all(fd, &n_media, sizeof n_media);
    write_all(fd, state.data.get() + kStatePrefix, state.n_bytes - kStatePrefix);
    write_all(fd, &trailer, sizeof trailer);
    if (::fstat(fd, &status) != 0) fail("cannot write the slot file");
    if (::renameat(folder.fd(), draft.c_str(), folder.fd(), name.c_str()) != 0) {
      fail("cannot name the slot file");
    }
  } catch (...) {
    ::unlinkat(folder.fd(), draft.c_str(), 0);
    throw;
  }
  return static_cast<std::size_t>(status.st_size);
}

SlotState read_slot_file(const std::string& directory, const std::string& name,
                         const SlotFileLimits& limits, std::size_t& n_bytes) {
  const File folder(open_directory(directory));
  // Not blocking: opening a pipe would wait for its writer.
  const File file(
      ::openat(folder.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.fd() < 0) fail("cannot open the slot file");
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0) fail("cannot read the slot file");
  if (!S_ISREG(status.st_mode)) throw SlotFileError("it is not a file");
  auto n_left = static_cast<std::size_t>(status.st_size);
  n_bytes = n_left;
  std::array<std::uint32_t, 3> head{};
  if (n_left < sizeof head) throw SlotFileError("the slot file is cut short");
  read_all(file.fd(), head.data(), sizeof head);
  n_left -= sizeof head;
  if (head[0] != LLAMA_STATE_SEQ_MAGIC || head[1] != LLAMA_STATE_SEQ_VERSION) {
    throw SlotFileError("it is not a slot file of this version");
  }
  if (head[2] > n_left / sizeof(TokenId)) throw SlotFileError("the slot file is cut short");
  std::vector<TokenId> words(head[2]);
  read_all(file.fd(), words.data(), words.size() * sizeof(TokenId));
  n_left -= words.size() * sizeof(TokenId);

  SlotState state;
  state.tokens = unpack(std::move(words));
  check_tokens(state.tokens, limits);
  state.allocate(kStatePrefix + n_left);
  const std::array<std::uint32_t, 2> prefix{kStateMagic, 0};
  std::memcpy(state.data.get(), prefix.data(), kStatePrefix);
  read_all(file.fd(), state.data.get() + kStatePrefix, n_left);

  Trailer trailer{};
  if (n_left >= sizeof trailer) {
    std::memcpy(&trailer, state.data.get() + state.n_bytes - sizeof trailer, sizeof trailer);
  }
  if (trailer.magic != kTrailerMagic) {
    check_untold(state);
    return state;
  }
  state.n_bytes -= sizeof trailer;
  if (trailer.model != limits.model) {
    throw SlotFileError("the slot file is of another model, or of another type of KV cache");
  }
  if (trailer.n_tokens != state.tokens.size() ||
      trailer.n_state_bytes != state.n_bytes - kStatePrefix ||
      trailer.checksum != checksum_of(state)) {
    throw SlotFileError("the slot file is damaged");
  }
  state.pieces = StatePieces::of(state.bytes(), state.tokens.size());
  return state;
}

}  // namespace unpaced
