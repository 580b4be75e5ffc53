// Arrays begin at cache lines, llama.cpp's too.
//
// ggml's CPU backend takes its work buffer with new[], which promises 16 bytes. Attention's
// accumulator lies in it and is read and written for every cell of the KV cache: where it crosses
// the end of a page, by luck of the addresses, a prompt takes twice as long (docs/bench/prefix.md).
// The libraries are loaded as this module's dependencies and take these functions for theirs; where
// somebody loaded them before, they go on as they are.
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kCacheLine = 64;
// Smaller ones are no buffers that anything is computed in.
constexpr std::size_t kSmallest = 1024;

}  // namespace

void* operator new[](std::size_t n_bytes) {
  const std::size_t n_padded = (n_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  // The sum wraps for sizes that nobody has: malloc refuses them.
  void* const memory = n_bytes < kSmallest || n_padded < n_bytes
                           ? std::malloc(n_bytes == 0 ? 1 : n_bytes)
                           : std::aligned_alloc(kCacheLine, n_padded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete[](void* memory) noexcept { std::free(memory); }

void operator delete[](void* memory, std::size_t /*n_bytes*/) noexcept { std::free(memory); }
