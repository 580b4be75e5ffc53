// What the decode thread counts. It is the only writer; anyone may read.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "decode/host_reason.h"

namespace unpaced {

// A relaxed counter with one writer: no read-modify-write is needed, and nothing is ordered by it.
class Counter {
 public:
  void add(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Batches by their tokens: of one, of two, of up to 4, 8 ... 2048 and of more.
inline constexpr std::size_t kBatchSizes = 13;

struct alignas(128) Counters {
  void count_batch(std::int32_t n_tokens) noexcept {
    if (n_tokens <= 0) return;
    const auto n = static_cast<std::uint64_t>(n_tokens);
    const auto size = static_cast<std::size_t>(std::bit_width(n - 1));
    n_batches[std::min(size, kBatchSizes - 1)].add(1);
    n_batch_tokens.add(n);
  }

  Counter n_steps;           // turns of the loop that had an active slot
  Counter n_busy_slots;      // sum over steps of active slots
  Counter n_tokens_decoded;  // sampled tokens
  Counter n_tokens_device;   // those that the GPU drew and fed to itself
  Counter n_tokens_prompt;   // prompt tokens computed, reused ones excluded
  Counter n_prompts_graph;   // prompts whose last tokens a captured graph has computed
  Counter n_tokens_cached;   // prompt tokens reused from a slot's KV
  Counter n_prefix_waits;    // requests that waited for another one to compute a common prefix
  Counter n_tokens_shared;   // of n_tokens_cached, those in cells that other sequences hold as well
  Counter n_cells_shared;    // cells that several sequences hold now
  // What running slots' cells together are more than they are, each counted once.
  Counter n_cells_repeated;
  Counter n_requests_started;   // got a slot
  Counter n_requests_finished;  // for any reason
  Counter n_requests_cancelled;
  Counter n_requests_failed;  // non-finite logits, llama_decode errors, exceptions
  // Where the host decodes. A batch is what one llama_decode computes.
  std::array<Counter, kBatchSizes> n_batches;
  Counter n_batch_tokens;
  // Beside slots that decode: steps with prompt tokens, those tokens, the most of one step.
  Counter n_steps_beside;
  Counter n_tokens_beside;
  Counter n_tokens_beside_max;
  Counter prefill_budget;  // prompt tokens that such a step may compute, by what is known now
  // What is known of a step's cost: with the last step's number of slots that decode, and what a
  // prompt token adds; from so many steps.
  Counter step_decode_us;
  Counter step_prompt_token_ns;
  Counter n_steps_observed;
  Counter prompt_alone_ns;  // what a prompt token takes in the largest step of a prompt alone
  Counter gap_us_max;       // the longest time between two tokens of a request
  // By HostReason: decoded on the host, at least in part, although the loop is the GPU's.
  std::array<Counter, kHostReasons> n_requests_host;
  // Steps that several sequences made together in the GPU's loop, and their tokens.
  Counter n_lane_steps;
  Counter n_lane_tokens;
  // Tokens that the GPU's loop drew under grammars without the host, and those of which it had to
  // ask, because their masks were late.
  Counter n_masked_tokens;
  Counter n_late_masks;
  Counter n_window_graphs;  // CUDA graphs in the cache, one a window and number of lanes
  Counter n_prompt_graphs;  // likewise, of short prompts: one a number of tokens and window
  Counter n_slots_active;
  Counter n_waiting;
  Counter n_cache_bytes;        // of slot states in host memory
  Counter n_cache_states;       // their number
  Counter n_cache_early_bytes;  // of copies of what idle slots hold, beside them
  Counter n_cache_lost;         // states whose cells were needed before they had been copied
  // Requests that could have a state of host memory: those to which it was copied, those that were
  // computed since that was quicker, and of these those to which a part was copied, to see.
  Counter n_cache_copied;
  Counter n_cache_computed;
  Counter n_cache_tried;
  Counter cache_cell_ns;  // what a cell takes in the largest part that is copied to a slot
  // Where slots share the cells and there are too few.
  Counter n_cell_waits;     // times a request began to wait for cells
  Counter n_cells_yielded;  // cells that requests gave to others, to be computed anew
  // The longest time that slots' states took between two steps, and what it took altogether.
  Counter cache_turn_us_max;
  Counter cache_us;
  Counter n_ring_full;   // times the decode thread had to wait for the reader
  Counter last_step_us;  // steady clock: the heartbeat
  Counter n_nodes;       // of graphs that the CPU has begun: the heartbeat within a step
  // Steady clock: when a test of the GPU's kernels began while the model loads; 0: none runs.
  Counter gpu_test_us;
  Counter gpu_test_compiles;  // 1: the driver compiles kernels in it, for minutes
};

}  // namespace unpaced
