// What the text so far does to the row: penalties and DRY, and the token that joins the text. One
// block. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/row_selection.cuh"
#include "sampling/chain/dry.h"
#include "sampling/chain/penalties.h"

namespace unpaced {

// dry_penalised() with the table of penalties.
__device__ inline float dry_penalised(float logit, TokenId token, std::int32_t repetition,
                                      const DeviceDry& dry) {
  if (dry.breakers.is_single_token_breaker(token)) return logit;
  const std::int32_t excess = min(repetition, dry.max_match) - dry.allowed_length;
  return legal_logit(logit - dry.penalty[excess]);
}

// The block's lowest index in [0, n) that is accepted, n if none is.
template <class Accepts>
__device__ std::int32_t block_first(Shared& shared, std::int32_t n, const Accepts& accepts) {
  for (std::int32_t base = 0; base < n; base += kThreads) {
    const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x);
    const bool found = i < n && accepts(i);
    __syncthreads();
    if (threadIdx.x == 0) shared.first = n;
    __syncthreads();
    if (found) atomicMin(&shared.first, i);
    __syncthreads();
    if (shared.first < n) return shared.first;
  }
  return n;
}

// find_repetitions(): scratch.repetition and dry.touched. Every place of the text is compared with
// its end by a thread of its own.
__device__ inline void find_dry(DeviceSamplerState& s, Shared& shared) {
  DeviceDry& dry = s.dry;
  const DryWindow window{s.history + s.history_size, min(s.history_size, dry.last_n)};
  const auto tail_at = [&](std::int32_t i) {
    return dry_detail::longest_tail(window, i, dry.breakers);
  };
  std::int32_t limit = window.size;
  if (dry.breakers.n_entries > 0) {
    const std::int32_t i =
        block_first(shared, window.size, [&](std::int32_t at) { return tail_at(at) >= 0; });
    if (i < window.size) limit = i - tail_at(i);
  }
  const bool applies = window.size > dry.allowed_length && limit >= dry.allowed_length;
  if (threadIdx.x == 0) {
    dry.applies = applies;
    dry.n_touched = 0;
  }
  __syncthreads();
  if (!applies) return;
  const std::int32_t most = min(limit, dry.max_match);
  for (std::int32_t k = 1 + static_cast<std::int32_t>(threadIdx.x); k < window.size;
       k += kThreads) {
    const std::int32_t longest = min(most, window.size - k);
    std::int32_t n = 0;
    while (n < longest && window.at(n) == window.at(k + n)) ++n;
    if (n < dry.allowed_length) continue;
    const TokenId next = window.at(k - 1);
    if (atomicMax(&s.scratch.repetition[next], n + 1) == 0) {
      dry.touched[atomicAdd(&dry.n_touched, 1)] = next;
    }
  }
  __syncthreads();
}

__device__ inline void forget_dry(DeviceSamplerState& s) {
  for (std::int32_t i = threadIdx.x; i < s.dry.n_touched; i += kThreads) {
    s.scratch.repetition[s.dry.touched[i]] = 0;
  }
}

__device__ inline void penalise_row(const StepRow& row, SamplerKind kind) {
  const DeviceSamplerState& s = *row.sampling;
  if (kind == SamplerKind::kPenalties) {
    for (std::int32_t i = threadIdx.x; i < s.counts.size; i += kThreads) {
      float& logit = row.logits[s.counts.entries[i].token];
      logit = penalised(logit, s.counts.entries[i].value, s.penalties);
    }
  } else if (s.dry.applies) {
    for (std::int32_t i = threadIdx.x; i < s.dry.n_touched; i += kThreads) {
      const TokenId token = s.dry.touched[i];
      float& logit = row.logits[token];
      logit = dry_penalised(logit, token, s.scratch.repetition[token] - 1, s.dry);
    }
  }
  __syncthreads();
}

__device__ inline void add_biases(const StepRow& row) {
  const DeviceSamplerState& s = *row.sampling;
  for (std::int32_t i = threadIdx.x; i < s.n_biases; i += kThreads) {
    const TokenId token = s.biases[i].token;
    if (i > 0 && s.biases[i - 1].token == token) continue;  // its first bias's thread adds them all
    float logit = row.logits[token];
    for (std::int32_t j = i; j < s.n_biases && s.biases[j].token == token; ++j) {
      logit = legal_logit(logit + s.biases[j].bias);
    }
    row.logits[token] = logit;
  }
  __syncthreads();
}

// Whether biases or links change the row before anything else, by the first block.
__device__ inline bool changes_row(const DeviceSamplerState& s) {
  return s.n_biases + s.n_row_links > 0;
}

// Biases, then the row's links, into the row; the touched groups' keys follow. The whole block.
__device__ inline void adjust_row(const StepRow& row, std::uint64_t* keys) {
  const DeviceSamplerState& s = *row.sampling;
  const std::int32_t n_links = s.n_row_links;
  const std::int32_t n_biases = s.n_biases;
  if (n_biases + n_links == 0) return;
  if (n_biases > 0) add_biases(row);
  bool has_penalties = false;
  bool has_dry = false;
  for (std::int32_t i = 0; i < n_links; ++i) {
    penalise_row(row, s.row_links[i]);
    (s.row_links[i] == SamplerKind::kPenalties ? has_penalties : has_dry) = true;
  }
  const std::int32_t n_counts = has_penalties ? s.counts.size : 0;
  const std::int32_t n_dry = has_dry && s.dry.applies ? s.dry.n_touched : 0;
  for (std::int32_t i = threadIdx.x / 32; i < n_biases + n_counts + n_dry; i += kThreads / 32) {
    const TokenId touched = i < n_biases              ? s.biases[i].token
                            : i < n_biases + n_counts ? s.counts.entries[i - n_biases].token
                                                      : s.dry.touched[i - n_biases - n_counts];
    const std::int32_t token = touched / kGroup * kGroup + lane();
    const std::uint64_t best =
        warp_greatest(token < row.n_vocab ? key_of(row.logits[token], token) : 0U);
    // Warps that share a group write the same key.
    if (lane() == 0) {
      atomicExch(reinterpret_cast<unsigned long long*>(&keys[touched / kGroup]), best);
    }
  }
  __syncthreads();
}

// The token joins the text that the penalties see. One thread.
__device__ inline void accept(DeviceSamplerState& s, TokenId token) {
  if (s.penalty_last_n == 0 && s.dry.last_n == 0) return;
  if (s.penalty_last_n > 0) {
    count_token(s.counts, token);
    if (s.history_size >= s.penalty_last_n) {
      uncount_token(s.counts, s.history[s.history_size - s.penalty_last_n]);
    }
  }
  s.history[s.history_size++] = token;
}

}  // namespace unpaced
