// The records that cross a ring. Trivially copyable, one cache line each, all with the request id
// and a sequence number, so that loss, duplication or reordering is detectable by the reader.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/token.h"

namespace unpaced {

using RequestId = std::uint64_t;
// Requests reuse one another's prefixes within a domain alone.
using CacheDomain = std::uint64_t;
struct RequestSpec;  // request.h
struct SlotAction;   // slot_action.h

enum class CommandKind : std::uint8_t { kSubmit = 0, kCancel, kSlotAction };

// Front end -> decode thread.
struct alignas(64) Command {
  RequestId request_id;
  // kSubmit only. On loan to the decode thread until the request's kFinished event; the front end
  // owns it and frees it (free() may lock).
  RequestSpec* spec;
  SlotAction* action;  // kSlotAction only; on loan in the same way
  CommandKind kind;
};

enum class EventKind : std::uint8_t {
  kStarted = 0,  // the request has its slot; n_prompt, n_cached are known
  kPrefill,      // a prefill chunk is done; n_processed advanced
  kToken,        // one decoded token
  kLogprobs,  // up to kPairsPerEvent (token, logprob) pairs; they precede the kToken they belong to
  kPromptLogprob,  // logprob of one prompt token, given those before it (echo); pairs precede it
  kFinished,       // last event of a request, only one of a slot action
};

enum class FinishReason : std::uint8_t {
  kNone = 0,
  kEos,           // a token of the EOG set (it was published as a token)
  kTokenLimit,    // max_tokens reached
  kContextLimit,  // the slot's context is full
  kCancelled,
  kNonFinite,       // NaN or no finite logit: an error
  kDecodeFailed,    // llama_decode returned an error: `status` holds it
  kException,       // a C++ exception was caught in the step
  kStopped,         // the engine was stopped
  kStopString,      // the text holds a stop string; the token that completed it is the last one
  kGrammarEnd,      // the grammar is complete, and the request bans the tokens that end the text
  kGrammarDeadEnd,  // the request bans every token that its grammar allows: an error
  kGrammarFailed,   // the grammar's limits, or no answer in time: an error; the mask says more
  kIndentLimit,     // a line of the text is indented too little: it is cut off
  kTimeLimit,       // a new line came after the time that the request has
};

[[nodiscard]] constexpr bool is_error(FinishReason reason) noexcept {
  return reason == FinishReason::kNonFinite || reason == FinishReason::kDecodeFailed ||
         reason == FinishReason::kException || reason == FinishReason::kGrammarDeadEnd ||
         reason == FinishReason::kGrammarFailed;
}

inline constexpr std::int32_t kPairsPerEvent = 4;

// Decode thread -> front end.
struct alignas(64) TokenEvent {
  RequestId request_id;
  std::int64_t t_us;              // steady clock, when the event was made
  std::uint32_t sequence_number;  // 0, 1, 2, ... within the request
  std::uint16_t slot;
  EventKind kind;
  FinishReason finish_reason;  // kFinished
  union {
    struct {
      TokenId token;
      float logprob;           // of the sampled token, where asked for
      std::int32_t n_decoded;  // tokens decoded so far, this one included
      std::int32_t n_cells;    // tokens the slot's KV holds, this one not among them
      std::int32_t n_shifts;   // context shifts so far
    } token;                   // kToken, kPromptLogprob
    struct {
      std::int32_t n_prompt;
      std::int32_t n_cached;     // prompt tokens reused from the slot's KV
      std::int32_t n_processed;  // prompt tokens in the KV now, cached ones included
      // kStarted: what became of the slots' contents, see Takeover.
      std::int32_t n_idle_saved;
      std::int32_t updated_cache;
      std::uint32_t
          copy_us;  // kStarted: it waited in its slot for states to be copied, at most 71 min
      std::int32_t n_kept_copied;    // kStarted: see Takeover::n_copied
      std::int32_t n_kept_computed;  // kStarted: see Takeover::n_computed
    } prompt;                        // kStarted, kPrefill
    struct {
      std::int32_t n_pairs;
      TokenLogprob pair[kPairsPerEvent];
    } logprobs;  // kLogprobs
    struct {
      std::int32_t n_decoded;
      std::int32_t n_cells;    // tokens the slot's KV holds
      std::int32_t status;     // kDecodeFailed: llama_decode's return value
      std::int32_t n_shifts;   // context shifts: the beginning is no longer in the KV
      std::int32_t cut_line;   // see TextLimits; -1: the whole text counts
      std::uint32_t cells_us;  // it waited for cells that others held, at most 71 min
    } finished;                // kFinished
  };
};
static_assert(sizeof(Command) == 64 && std::is_trivially_copyable_v<Command>);
static_assert(sizeof(TokenEvent) == 64 && std::is_trivially_copyable_v<TokenEvent>);

}  // namespace unpaced
