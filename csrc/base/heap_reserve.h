// Heap for the decode thread, taken before it serves; what others have freed is given back.
#pragma once

#include <cstddef>

namespace unpaced {

// Grows the calling thread's malloc arena by `n_bytes` and keeps it grown. llama_decode allocates
// small objects for every batch; without this the arena grows a page at a time, with an mprotect
// each, in the middle of requests. glibc only; elsewhere it does nothing lasting.
void reserve_heap(std::size_t n_bytes);

// Returns the freed pages between those in use to the system, of all arenas. The reserve stays
// mapped: its pages come back as they are touched. Takes milliseconds for each hundred megabytes,
// in which other threads' allocations may wait.
void give_back_heap() noexcept;

}  // namespace unpaced
