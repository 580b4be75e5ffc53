// Heap for the decode thread, taken before it serves.
#pragma once

#include <cstddef>

namespace unpaced {

// Grows the calling thread's malloc arena by `n_bytes` and keeps it grown. llama_decode allocates
// small objects for every batch; without this the arena grows a page at a time, with an mprotect
// each, in the middle of requests. glibc only; elsewhere it does nothing lasting.
void reserve_heap(std::size_t n_bytes);

}  // namespace unpaced
