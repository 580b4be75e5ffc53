// What the drawing code is compiled to, by the architecture that it is compiled for. The host asks
// this of the code that the card runs, which need not be the card's own: the driver may have made
// it of an older card's PTX.
#pragma once

#include <cstddef>

namespace unpaced {

// Architectures are as __CUDA_ARCH__ has them: 750 is compute capability 7.5.
constexpr bool has_clusters(int architecture) noexcept { return architecture >= 900; }

// What is never used at once shares its place in a block's shared memory, of which most cards have
// less than 9.0 with its 227 KiB. So has 10.0 as much, but its PTX also runs on 12.1, with 99.
constexpr bool is_compact(int architecture) noexcept { return architecture != 900; }

// Shared memory that a block of the drawing kernel takes, in bytes.
struct DrawRoom {
  std::size_t roomy;    // without the keys
  std::size_t compact;  // likewise, where the code is compact
  std::size_t keys;     // of the row's groups
};

struct DrawMemory {
  std::size_t shared_bytes;
  bool keys_are_far;  // they stay in the card's memory
  bool fits;
};

// Of a block that may have `most` bytes. Only compact code can leave the keys where they are.
constexpr DrawMemory draw_memory(int architecture, const DrawRoom& room,
                                 std::size_t most) noexcept {
  const bool compact = is_compact(architecture);
  const std::size_t least = compact ? room.compact : room.roomy;
  const bool is_far = compact && least + room.keys > most;
  const std::size_t n = is_far ? least : least + room.keys;
  return {.shared_bytes = n, .keys_are_far = is_far, .fits = n <= most};
}

#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__)
inline constexpr int kArchitecture = __CUDA_ARCH__;
#else
inline constexpr int kArchitecture = 900;  // the host's compiler only reads device code
#endif
inline constexpr bool kHasClusters = has_clusters(kArchitecture);
inline constexpr bool kIsCompact = is_compact(kArchitecture);
#endif

}  // namespace unpaced
