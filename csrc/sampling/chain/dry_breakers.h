// DRY sequence breakers in token form, flattened for lookup without allocation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"

struct llama_vocab;

namespace unpaced {

// A breaker is a head token and the tail of tokens that must follow it. Sorted by head.
// Built off the decode thread from breaker strings and the vocabulary (dry_breakers.cpp), in the
// way of llama.cpp's get_overlapping_token_sequences.
struct DryBreakers {
  struct Entry {
    TokenId head;
    std::int32_t tail_begin;  // into tails
    std::int32_t tail_end;
  };
  std::vector<Entry> entries;
  std::vector<TokenId> tails;
};

// Every token in which one of the strings occurs or begins, the rest of the string as its tail.
// Empty strings are skipped; a string ends at its first NUL and after 40 bytes. Detokenises the
// whole vocabulary: milliseconds, and it allocates.
DryBreakers make_dry_breakers(const llama_vocab* vocab, std::span<const std::string> breakers);

}  // namespace unpaced
