// A map from tokens to small integers: constant-time set, remove and clear, and its entries are
// dense.
#pragma once

#include <cstdint>

#include "base/token.h"
#include "sampling/arithmetic/host_device.h"

namespace unpaced {

// The sparse set of Briggs and Torczon (1993). The memory is the caller's: `index` has an element
// for every token of the vocabulary (any contents), `entries` as many as tokens can be in at a
// time.
struct TokenTable {
  struct Entry {
    TokenId token;
    std::int32_t value;
  };
  std::int32_t* index;
  Entry* entries;
  std::int32_t size;

  UNPACED_HD Entry* find(TokenId token) noexcept {
    const std::int32_t i = index[token];
    return i >= 0 && i < size && entries[i].token == token ? &entries[i] : nullptr;
  }

  UNPACED_HD const Entry* find(TokenId token) const noexcept {
    const std::int32_t i = index[token];
    return i >= 0 && i < size && entries[i].token == token ? &entries[i] : nullptr;
  }

  // The token must not be in.
  UNPACED_HD void insert(TokenId token, std::int32_t value) noexcept {
    index[token] = size;
    entries[size++] = {token, value};
  }

  UNPACED_HD void erase(Entry* entry) noexcept {
    *entry = entries[--size];
    index[entry->token] = static_cast<std::int32_t>(entry - entries);
  }

  UNPACED_HD void clear() noexcept { size = 0; }
};

}  // namespace unpaced
