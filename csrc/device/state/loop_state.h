// What the decode loop on the GPU works on: plain data that host and device share.
#pragma once

#include <cstdint>

#include "device/state/step_logprobs.h"
#include "device/state/wide_scratch.h"
#include "sampling/arithmetic/host_device.h"
#include "sampling/chain/dry.h"
#include "sampling/chain/penalties.h"
#include "sampling/chain/sampling_params.h"
#include "sampling/row/token_table.h"
#include "sampling/sampler_streams.h"

namespace unpaced {

// Steps of one launch: a KV window at most, so the loop ends even if nothing else ends it.
inline constexpr std::int32_t kMaxSteps = 256;
// Sequences that can decode side by side, a row of the step each: a warp judges all rows' ends.
inline constexpr std::int32_t kMaxLanes = 32;
// Candidates that the selection of the k best can list, and a block's shared memory holds.
inline constexpr std::int32_t kMaxListed = 1024;
// Up to here one warp is the fastest to run the chain.
inline constexpr std::int32_t kMaxNarrow = 128;

enum class LoopExit : std::uint32_t {
  kNone = 0,   // still running
  kSteps,      // the planned steps are done
  kPause,      // a token was drawn that the host must see before the next step: one of the EOG set,
               // or one that may complete a stop string; the next step's inputs are in place
  kStopped,    // the host asked for it, or another row's steps have ended
  kNonFinite,  // a logit is NaN or +inf, or every token is banned; the last step gave no token
  kAsk,        // the token's mask was not there: the host must say whether the grammar allows it;
               // the next step's inputs are in place, as if it did
  kBarred,     // the grammar leaves nothing to draw; the last step gave no token
};

// What a row's grammar says of the token that was drawn as if there were none.
enum class MaskVerdict : std::int32_t {
  kAllowed = 0,  // or the row has no grammar
  kRefused,      // it is drawn again, under the mask
  kLate,         // the mask was not there in time
};

// Inputs of the decode graph, in device memory at addresses that never change: arrays of one
// element for each row.
struct StepInputs {
  std::int32_t* token;
  std::int32_t* position;
  std::int64_t* k_index;
  std::int64_t* v_index;
  std::uint16_t* mask;  // F16 bits, one for each cell of the window, row by row: 0 or -inf

  // Where those of row i begin, in a window of n_kv cells.
  [[nodiscard]] UNPACED_HD StepInputs of_row(std::int32_t i, std::int32_t n_kv) const noexcept {
    return {.token = token + i,
            .position = position + i,
            .k_index = k_index + i,
            .v_index = v_index + i,
            .mask = mask + static_cast<std::int64_t>(i) * n_kv};
  }
};

// Written by the host before each launch; `step` to `stop` by the device.
struct LaneControl {
  std::int32_t n_steps;          // to make at most, 1 .. kMaxSteps
  std::int32_t position;         // of the first step's input token
  std::int64_t first_cell;       // of the sequence's KV stream
  std::int32_t step;             // steps made
  std::int32_t exited;           // 1: later launches do nothing
  std::int32_t drawn;            // of several rows: the step's token, until all have one
  std::uint32_t stop;            // likewise: the mailbox's, as it was at the draw's beginning
  std::uint32_t mask_step;       // under a grammar: the first step, as the mask board counts
  MaskVerdict verdict;           // likewise: on the step's first draw
  std::int32_t illegal;          // 1: a logit is NaN or +inf
  std::int32_t cell[kMaxSteps];  // cell of each step's input token
};

// In pinned memory. The host clears the entries before a launch; the device fills one a step.
struct LaneMailbox {
  volatile std::uint32_t stop;  // written by the host: leave after the step at hand
  std::uint32_t padding[15];
  volatile std::uint64_t entry[kMaxSteps];
};

// A step's token and whether the loop goes on, in one word, so that one store publishes both.
// Never 0. With kNonFinite and kBarred there is no token.
UNPACED_HD inline std::uint64_t mailbox_entry(TokenId token, LoopExit exit) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(exit) + 1U) << 32 |
         static_cast<std::uint32_t>(token);
}

UNPACED_HD inline TokenId entry_token(std::uint64_t entry) noexcept {
  return static_cast<TokenId>(static_cast<std::uint32_t>(entry));
}

UNPACED_HD inline LoopExit entry_exit(std::uint64_t entry) noexcept {
  return static_cast<LoopExit>(static_cast<std::uint32_t>(entry >> 32) - 1U);
}

// DRY on the device. The penalties are a table: the host's pow made them.
struct DeviceDry {
  std::int32_t last_n;  // 0: off
  std::int32_t allowed_length;
  std::int32_t max_match;  // longer repetitions cost no more
  const float* penalty;    // by how much a repetition is longer than the allowed length
  DryBreakerView breakers;
  TokenId* touched;  // tokens that would extend a repetition, each once
  std::int32_t n_touched;
  bool applies;  // to this step
};

// A chain of top-p, min-p and a temperature, in this order, on the whole row (top-p is needed) or
// on more of its best than a warp takes (none is): certain_draw.cuh.
struct NucleusChain {
  bool applies;
  bool has_top_p;
  bool has_min_p;
  float top_p;
  float temperature;  // 1: none
};

// How the tokens of such a chain were drawn.
struct NucleusTally {
  std::int32_t by_min_p;    // where min-p cuts, top-p surely does not
  std::int32_t by_top_p;    // both cuts are sure
  std::int32_t among_best;  // both cuts of the k best are
  std::int32_t in_order;    // by the sums in order
};

// One request's sampler on the device.
struct DeviceSamplerState {
  SamplingParams params;
  float log_min_p;
  std::int32_t n_vocab;
  std::int32_t n_row_links;  // penalties and DRY, before anything else
  SamplerKind row_links[kMaxChainLength];
  std::int32_t top_k;    // how many candidates the row's selection lists; 0: the whole row
  std::int32_t n_links;  // of the chain after that selection
  SamplerKind links[kMaxChainLength];
  NucleusChain nucleus;
  NucleusTally nucleus_tally;
  bool is_wide;        // the list is in global memory: wide_chain.cuh
  bool needs_cluster;  // the list is long, or logarithms of probabilities are wanted
  Penalties penalties;
  std::int32_t penalty_last_n;  // 0: no penalties anywhere in the chain
  TokenTable counts;
  DeviceDry dry;
  TokenId* history;  // the newest tokens end at history_size
  std::int32_t history_size;
  const LogitBias* biases;  // sorted by token, a token's biases in the request's order
  std::int32_t n_biases;
  SamplerStreams streams;
  LogprobPlan logprobs;
  WideScratch scratch;
};

}  // namespace unpaced
