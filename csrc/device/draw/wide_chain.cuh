// The links of the sampling chain on a list of any length, by one block or the whole cluster: the
// arithmetic of the sampling core's headers, its sums in the candidates' order (ordered_scan.cuh).
// Device code of sample_kernels.cu.
#pragma once

#include "device/draw/nucleus.cuh"
#include "device/draw/ordered_scan.cuh"
#include "device/draw/row_selection.cuh"
#include "device/draw/text_penalties.cuh"
#include "device/draw/wide_list.cuh"
#include "device/state/loop_state.h"
#include "sampling/chain/temperature.h"
#include "sampling/chain/xtc.h"

namespace unpaced {

struct WideChain {
  Team team;
  WideList list;
  DeviceSamplerState& s;
  Shared& shared;

  __device__ float* values() const { return team_room().scratch.value; }
  __device__ float best() { return list_max(team, list); }
  __device__ void sort() { sort_list(team, list); }
  // values[i] = change(i).
  template <class Change>
  __device__ void fill(const Change& change) {
    fill_values(team, list.size, change, [](float x) { return static_cast<double>(x); });
  }
  // The values added in the list's order.
  __device__ float sum() {
    return static_cast<float>(ordered_sum<FloatSum>(team, list.size, 1.0, {}).sum);
  }
  // A short list is faster alone. True: this block has nothing more to do.
  __device__ bool leave() {
    constexpr std::int32_t kSoloItems = 4096;
    if (team.n_blocks == 1 || list.size > kSoloItems) return false;
    team.n_blocks = 1;
    return team.rank != 0;
  }
};

// The values are exp(logit - best), divided by the divisor.
__device__ __noinline__ void fill_exponentials(WideChain& w, float best, float divisor) {
  const Item* items = w.list.items;
  w.fill([&](std::int32_t i) { return exp_f32(items[i].logit - best) / divisor; });
}

// softmax(): the values are exp(logit - best). Returns their sum in the list's order, by which each
// is to be divided.
__device__ __noinline__ float wide_softmax(WideChain& w) {
  fill_exponentials(w, w.best(), 1.0F);
  return w.sum();
}

// Cuts the list where the values, added in order, satisfy the search, but keeps min_keep.
__device__ __noinline__ void cut_where(WideChain& w, std::int32_t min_keep, const Search& search) {
  const std::int32_t n = w.list.size;
  const std::int32_t first = ordered_sum<FloatSum>(w.team, n, 1.0, search).found;
  w.list.size = min(n, max(first + 1, min_keep));
}

__device__ inline void wide_keep_top_p(WideChain& w, float p, std::int32_t min_keep) {
  const float best = w.best();
  const float sum = wide_softmax(w);
  if (w.list.sorted) {
    const float* value = w.values();
    w.fill([&](std::int32_t i) { return value[i] / sum; });
  } else {
    if (min_keep <= 1) drop_far_from_nucleus(w.team, w.list, best, p);
    if (w.leave()) return;
    w.sort();
    fill_exponentials(w, best, sum);
  }
  cut_where(w, min_keep, {p, Search::kReaches});
}

__device__ inline void wide_keep_min_p(WideChain& w, float log_p, std::int32_t min_keep) {
  const float threshold = w.best() + log_p;
  const Item* items = w.list.items;
  const auto stays = [threshold](const Item& item) { return item.logit >= threshold; };
  const std::int32_t n =
      count_list(w.team, w.list, [&](std::int32_t i) { return stays(items[i]); });
  if (!w.list.sorted && n > 0 && n >= min_keep) return filter_list(w.team, w.list, stays);
  w.sort();
  w.list.size = max(1, max(n, min(min_keep, w.list.size)));
}

__device__ inline void wide_xtc(WideChain& w) {
  const SamplingParams& p = w.s.params;
  if (w.list.size < 2) return;
  std::uint64_t* words = w.team.next_broadcast();
  if (w.team.rank == 0 && threadIdx.x == 0) {
    words[0] = xtc_strikes(w.list.size, p.xtc_probability, w.s.streams.xtc) ? 1U : 0U;
  }
  w.team.sync();
  if (words[0] == 0U) return;
  w.sort();
  const float sum = wide_softmax(w);
  const float* value = w.values();
  const float threshold = p.xtc_threshold;
  const std::int32_t last =
      first_in_list(w.team, w.list,
                    [&](std::int32_t i) { return !(value[i] / sum >= threshold); }) -
      1;
  if (last <= 0 || w.list.size - last < p.min_keep) return;
  w.list.items += last;
  w.list.size -= last;
  w.list.knows_best = false;
}

__device__ inline void wide_temperature(WideChain& w, float temperature) {
  const float best = w.best();
  const TemperatureScale scale = temperature_scale(temperature, best);
  if (!scale.greedy) {
    w.list.best /= scale.divisor;
    return for_each(w.team, w.list, [&](Item& item) { item.logit /= scale.divisor; });
  }
  Item* items = w.list.items;
  const std::int32_t first =
      first_in_list(w.team, w.list, [&](std::int32_t i) { return items[i].logit == best; });
  for_each(w.team, w.list, [&](Item& item) {
    if (&item != items + first) item.logit = -kInfinity;
  });
}

__device__ inline void wide_dynamic_temperature(WideChain& w) {
  const SamplingParams& p = w.s.params;
  const float range = p.dynatemp_range;
  if (!(range > 0.0F)) {
    if (p.temperature != 1.0F) wide_temperature(w, p.temperature);
    return;
  }
  if (w.list.size <= 1) return;
  const float low = p.temperature - range > 0.0F ? p.temperature - range : 0.0F;
  const float high = p.temperature + range;
  const float max_entropy = -log_f32(1.0F / static_cast<float>(w.list.size));
  w.sort();
  const float sum = wide_softmax(w);
  const float* value = w.values();
  w.fill([&](std::int32_t i) {
    const float p_i = value[i] / sum;
    return p_i > 0.0F ? -(p_i * log_f32(p_i)) : 0.0F;
  });
  const float entropy = w.sum();
  wide_temperature(w, low + (high - low) * pow_f32(entropy / max_entropy, p.dynatemp_exponent));
}

__device__ inline void wide_ban_below_n_sigma(WideChain& w, float n) {
  if (w.list.size <= 1) return;
  const Item* items = w.list.items;
  const float best = w.best();
  const auto is_valid = [items](std::int32_t i) { return items[i].logit != -kInfinity; };
  const std::int32_t n_valid = count_list(w.team, w.list, is_valid);
  if (n_valid == 0) return;
  w.fill([&](std::int32_t i) { return is_valid(i) ? items[i].logit : 0.0F; });
  const auto sum = static_cast<float>(ordered_sum<SignedSum>(w.team, w.list.size, 1.0, {}).sum);
  const float mean = sum / static_cast<float>(n_valid);
  // page_sum must be of the squares; the values are what is squared.
  fill_values(
      w.team, w.list.size,
      [&](std::int32_t i) { return is_valid(i) ? items[i].logit - mean : 0.0F; },
      [](float x) { return static_cast<double>(x) * x; });
  const auto squares = static_cast<float>(ordered_sum<SquareSum>(w.team, w.list.size, 1.0, {}).sum);
  const float variance = squares / static_cast<float>(n_valid);
  const float sigma = static_cast<float>(::sqrt(static_cast<double>(variance)));
  const float threshold = best - n * sigma;
  for_each(w.team, w.list, [&](Item& item) {
    if (item.logit < threshold) item.logit = -kInfinity;
  });
}

// One block; the list fits into shared memory.
__device__ inline void wide_keep_typical_p(WideChain& w, float p, std::int32_t min_keep) {
  w.sort();
  const float best = w.best();
  const float sum = wide_softmax(w);
  float* value = w.values();
  w.fill([&](std::int32_t i) {
    const float p_i = value[i] / sum;
    const float surprise = -log_f32(p_i);
    w.shared.scratch[i] = {w.list.items[i].token, w.list.items[i].logit, surprise};
    return p_i * surprise;
  });
  const float entropy = w.sum();
  for (std::int32_t i = threadIdx.x; i < w.list.size; i += kThreads) {
    const float distance = w.shared.scratch[i].p - entropy;
    w.shared.scratch[i].p = distance < 0.0F ? -distance : distance;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    introsort(w.shared.scratch, w.list.size,
              [](const Candidate& a, const Candidate& b) { return a.p < b.p; });
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < w.list.size; i += kThreads) {
    const Candidate& kept = w.shared.scratch[i];
    w.list.items[i] = {kept.logit, kept.token};
  }
  __syncthreads();
  fill_exponentials(w, best, sum);
  cut_where(w, min_keep, {p, Search::kExceeds});
  w.list.sorted = false;
  w.list.by_token = false;
  w.list.knows_best = false;
}

__device__ inline void wide_keep_top_k(WideChain& w, std::int32_t k) {
  w.sort();
  w.list.size = min(w.list.size, k);
}

__device__ inline void wide_penalise(WideChain& w) {
  const TokenTable& counts = w.s.counts;
  for_each(w.team, w.list, [&](Item& item) {
    const TokenTable::Entry* entry = counts.find(item.token);
    if (entry != nullptr) item.logit = penalised(item.logit, entry->value, w.s.penalties);
  });
  w.list.sorted = w.list.knows_best = false;
}

__device__ inline void wide_dry(WideChain& w) {
  if (!w.s.dry.applies) return;
  for_each(w.team, w.list, [&](Item& item) {
    const std::int32_t repetition = w.s.scratch.repetition[item.token] - 1;
    if (repetition >= 0) item.logit = dry_penalised(item.logit, item.token, repetition, w.s.dry);
  });
  w.list.sorted = w.list.knows_best = false;
}

__device__ inline void wide_link(WideChain& w, SamplerKind kind) {
  const SamplingParams& p = w.s.params;
  switch (kind) {
    case SamplerKind::kPenalties:
      return wide_penalise(w);
    case SamplerKind::kDry:
      return wide_dry(w);
    case SamplerKind::kTopNSigma:
      return wide_ban_below_n_sigma(w, p.top_n_sigma);
    case SamplerKind::kTopK:
      return wide_keep_top_k(w, p.top_k);
    case SamplerKind::kTypicalP:
      return wide_keep_typical_p(w, p.typical_p, p.min_keep);
    case SamplerKind::kTopP:
      return wide_keep_top_p(w, p.top_p, p.min_keep);
    case SamplerKind::kMinP:
      return wide_keep_min_p(w, w.s.log_min_p, p.min_keep);
    case SamplerKind::kXtc:
      return wide_xtc(w);
    case SamplerKind::kTemperature:
      return wide_dynamic_temperature(w);
  }
}

}  // namespace unpaced
