// One request as the decode thread sees it. Built and owned by the front end, on loan to the decode
// thread from its kSubmit command to its kFinished event, so that the decode thread neither
// allocates nor frees.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "request/records.h"
#include "request/stop_matcher.h"
#include "request/text_limits.h"
#include "sampling/chain/dry_breakers.h"
#include "sampling/chain/infill.h"
#include "sampling/chain/sampling_params.h"

namespace unpaced {

class ReasoningBudget;  // reasoning_budget.h
class TokenMask;        // token_mask.h

struct RequestSpec {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // at least one token; every id in [0, n_vocab)
  SamplingParams sampling;
  std::vector<LogitBias> logit_bias;  // every token in [0, n_vocab); duplicates add up
  DryBreakers dry_breakers;
  std::shared_ptr<Infill> infill;  // where the chain has that link
  StopMatcher stop;
  TextLimits limits;
  // Bitset of tokens after which the host must look before the next step; null: only EOG tokens.
  // Where the GPU runs the loop it leaves it there.
  std::shared_ptr<const std::vector<std::uint32_t>> pause_tokens;
  // What the request's grammar allows; null: it has none. Of this request alone.
  std::shared_ptr<TokenMask> mask;
  // When its reasoning must end; null: whenever the model ends it. Of this request alone.
  std::shared_ptr<ReasoningBudget> reasoning_budget;
  std::vector<float> lora_scales;    // one for each adapter that is loaded
  CacheDomain cache_domain = 0;      // only requests of the same one reuse its cells, and it theirs
  std::int32_t max_tokens = -1;      // -1: until EOS or the end of the context
  std::int32_t n_probs = 0;          // top-N logprobs with every token
  bool want_logprob = false;         // the sampled token's own logprob
  bool post_sampling_probs = false;  // probabilities after the chain instead of logprobs before it
  bool prompt_logprobs = false;      // kPromptLogprob events; turns prompt reuse off
  bool cache_prompt = true;          // reuse the slot's common prefix
  std::int32_t id_slot = -1;         // the slot it wants, modulo their number; -1: any
  std::int32_t n_cache_reuse = 0;    // reuse moved chunks of at least so many tokens; 0: never
  std::int32_t n_keep = 0;           // what a context shift keeps of the beginning; -1: the prompt
  std::int32_t n_discard = 0;        // what it drops after that; 0: half
};

}  // namespace unpaced
