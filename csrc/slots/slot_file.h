// A slot's state as a file. The format is llama-server's (llama_state_seq_save_file with the packed
// token list of llama.cpp 0c1e57098 tools/server/server-common.cpp:570-640), followed by a trailer
// of ours that llama-server does not read: which model wrote it, how long it is, a checksum. A mark
// in the first cell, where llama-server looks away, says that there must be one. Files that never
// had one, llama-server's own among them, are read too; of those state_damage.h and llama.cpp check
// what can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "slots/slot_state.h"

namespace unpaced {

// The file cannot be used; one sentence for the client.
class SlotFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a state must fit.
struct SlotFileLimits {
  std::uint64_t model = 0;  // Model::identity()
  std::int32_t n_vocab = 0;
  std::int32_t n_ctx = 0;  // of a slot
};

// The name is that of something else than a file: not to be written over.
class SlotNameError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Any thread. `name` is a plain file name within `directory`. What is there under that name is
// replaced in one step, if it is a regular file. Returns the file's bytes. Throws SlotFileError,
// SlotNameError.
std::size_t write_slot_file(const std::string& directory, const std::string& name, SlotState& state,
                            std::uint64_t model);

// Any thread. Follows no symbolic link. Adds the file's bytes to `n_bytes`. Throws SlotFileError.
[[nodiscard]] SlotState read_slot_file(const std::string& directory, const std::string& name,
                                       const SlotFileLimits& limits, std::size_t& n_bytes);

}  // namespace unpaced
