// What the decode loop on the GPU works on: plain data that host and device share.
#pragma once

#include <cstdint>

#include "sampling/host_device.h"
#include "sampling/penalties.h"
#include "sampling/sampler_streams.h"
#include "sampling/sampling_params.h"
#include "sampling/token_table.h"

namespace unpaced {

// Steps of one launch: a KV window at most, so the loop ends even if nothing else ends it.
inline constexpr std::int32_t kMaxSteps = 256;
// Candidates that the device's chain can hold; a larger top-k is sampled on the host.
inline constexpr std::int32_t kMaxListed = 1024;

enum class LoopExit : std::uint32_t {
  kNone = 0,   // still running
  kSteps,      // the planned steps are done
  kPause,      // a token was drawn that the host must see before the next step: one of the EOG set,
               // or one that may complete a stop string; the next step's inputs are in place
  kStopped,    // the host asked for it
  kNonFinite,  // a logit is NaN or +inf, or every token is banned; the last step gave no token
};

// Inputs of the one-token decode graph, in device memory at addresses that never change.
struct StepInputs {
  std::int32_t* token;
  std::int32_t* position;
  std::int64_t* k_index;
  std::int64_t* v_index;
  std::uint16_t* mask;  // F16 bits, one for each cell of the window: 0 or -inf
};

// Written by the host before each launch; `step` and `exited` by the device.
struct LoopControl {
  std::int32_t n_steps;          // to make at most, 1 .. kMaxSteps
  std::int32_t position;         // of the first step's input token
  std::int64_t first_cell;       // of the sequence's KV stream
  std::int32_t step;             // steps made
  std::int32_t exited;           // 1: later launches of this block do nothing
  std::int32_t cell[kMaxSteps];  // cell of each step's input token
};

// In pinned memory. The host clears the entries before a launch; the device fills one a step.
struct LoopMailbox {
  volatile std::uint32_t stop;  // written by the host: leave after the step at hand
  std::uint32_t padding[15];
  volatile std::uint64_t entry[kMaxSteps];
};

// A step's token and whether the loop goes on, in one word, so that one store publishes both.
// Never 0. With kNonFinite there is no token.
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

// One request's sampler on the device.
struct DeviceSampling {
  SamplingParams params;
  float log_min_p;
  std::int32_t n_vocab;
  std::int32_t top_k;    // how many candidates the row's selection lists
  std::int32_t n_links;  // of the chain after that selection
  SamplerKind links[kMaxChainLength];
  bool penalise_row;  // penalties come before the selection
  Penalties penalties;
  std::int32_t penalty_last_n;  // 0: no penalties anywhere in the chain
  TokenTable counts;
  TokenId* history;  // penalty_last_n newest tokens end at history_size
  std::int32_t history_size;
  const LogitBias* biases;  // sorted by token, a token's biases in the request's order
  std::int32_t n_biases;
  SamplerStreams streams;
};

}  // namespace unpaced
