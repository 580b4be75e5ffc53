// Whether a sequence's state, as llama.cpp writes it, can be right.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace unpaced {

// What is wrong with a state that has no checksum, as far as that can be told without the model:
// cells that are not those of `n_tokens` tokens, values that are not finite. Empty: nothing found.
// llama.cpp itself checks the lengths and types against the model.
[[nodiscard]] std::string damage_of(std::span<const std::byte> state, std::size_t n_tokens);

}  // namespace unpaced
