#include <cuda_device_runtime_api.h>

#include <stdexcept>

#include "device/cuda_memory.h"
#include "device/sample_kernels.h"
#include "sampling/draw.h"
#include "sampling/min_p.h"
#include "sampling/temperature.h"
#include "sampling/top_k.h"
#include "sampling/top_n_sigma.h"
#include "sampling/top_p.h"
#include "sampling/typical_p.h"
#include "sampling/xtc.h"

namespace unpaced {
namespace {

constexpr int kGroup = 32;        // logits a group; the groups' best keys bound the selection
constexpr int kScanThreads = 256;
constexpr int kThreads = 1024;    // of the one block that draws
constexpr int kMaxHot = 4096;     // groups that may hold a selected logit
constexpr int kMaxFound = 4096;   // logits that reach the selection's threshold

// Shared memory of the drawing block beside the groups' keys.
struct Shared {
  std::uint64_t found[kMaxFound];
  std::int32_t hot[kMaxHot];
  Candidate list[kMaxListed];
  Candidate scratch[kMaxListed];
  std::uint64_t best;
  std::int32_t n_hot;
  std::int32_t n_found;
  std::uint32_t stop;
};

// Greater is better: logits first (-0 equals +0), then the lower token. Distinct for every token.
__device__ std::uint64_t key_of(float logit, std::int32_t token) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  const std::uint32_t ordered = (bits & 0x80000000U) != 0U ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffU - static_cast<unsigned>(token));
}

__device__ std::uint32_t ordered_logit(float logit) {
  return static_cast<std::uint32_t>(key_of(logit, 0) >> 32);
}

__device__ float logit_of(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float((ordered & 0x80000000U) != 0U ? ordered & 0x7fffffffU : ~ordered);
}

__device__ std::int32_t token_of(std::uint64_t key) {
  return static_cast<std::int32_t>(0xffffffffU - static_cast<std::uint32_t>(key));
}

__device__ std::uint64_t greater(std::uint64_t a, std::uint64_t b) { return a > b ? a : b; }

// Four logits a thread, eight threads a group.
__global__ void scan_row(const float* logits, std::int32_t n_vocab, std::uint64_t* group_best,
                         std::int32_t* illegal) {
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  float x[4];
  if (first + 3 < n_vocab) {
    const float4 four = *reinterpret_cast<const float4*>(logits + first);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    for (int i = 0; i < 4; ++i) x[i] = first + i < n_vocab ? logits[first + i] : -kInfinity;
  }
  std::uint64_t best = 0;
  bool legal = true;
  for (int i = 0; i < 4; ++i) {
    legal = legal && x[i] < kInfinity;
    if (first + i < n_vocab) best = greater(best, key_of(x[i], first + i));
  }
  for (int offset = 4; offset > 0; offset /= 2) {
    best = greater(best, __shfl_xor_sync(0xffffffffU, best, offset));
  }
  if (threadIdx.x % 8 == 0 && first < n_vocab) group_best[first / kGroup] = best;
  if (!legal) *illegal = 1;
}

__device__ std::uint64_t best_of_group(const float* logits, std::int32_t group,
                                       std::int32_t n_vocab) {
  std::uint64_t best = 0;
  const std::int32_t end = min((group + 1) * kGroup, n_vocab);
  for (std::int32_t i = group * kGroup; i < end; ++i) best = greater(best, key_of(logits[i], i));
  return best;
}

// Biases, then penalties, into the row; the touched groups' keys follow. The whole block.
__device__ void adjust_row(const StepKernelArguments& a, std::uint64_t* keys) {
  const DeviceSampling& s = *a.sampling;
  const std::int32_t n_counts = s.penalise_row ? s.counts.size : 0;
  if (s.n_biases + n_counts == 0) return;
  for (std::int32_t i = threadIdx.x; i < s.n_biases; i += kThreads) {
    const TokenId token = s.biases[i].token;
    if (i > 0 && s.biases[i - 1].token == token) continue;  // its first bias's thread adds them all
    float logit = a.logits[token];
    for (std::int32_t j = i; j < s.n_biases && s.biases[j].token == token; ++j) {
      logit = legal_logit(logit + s.biases[j].bias);
    }
    a.logits[token] = logit;
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < n_counts; i += kThreads) {
    float& logit = a.logits[s.counts.entries[i].token];
    logit = penalised(logit, s.counts.entries[i].value, s.penalties);
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < s.n_biases + n_counts; i += kThreads) {
    const TokenId token =
        i < s.n_biases ? s.biases[i].token : s.counts.entries[i - s.n_biases].token;
    // Threads that share a group write the same key.
    atomicExch(reinterpret_cast<unsigned long long*>(&keys[token / kGroup]),
               best_of_group(a.logits, token / kGroup, a.n_vocab));
  }
  __syncthreads();
}

// How many groups' keys reach `ordered`. The whole block; the same answer for every thread.
__device__ std::int32_t count_groups(const std::uint64_t* keys, std::int32_t n,
                                     std::uint32_t ordered) {
  std::int32_t count = 0;
  for (std::int32_t base = 0; base < n; base += kThreads) {
    const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x);
    count += __syncthreads_count(i < n && static_cast<std::uint32_t>(keys[i] >> 32) >= ordered);
  }
  return count;
}

// A threshold that at least k logits reach and few more: k groups that reach it hold k such logits.
__device__ std::uint32_t group_threshold(const std::uint64_t* keys, std::int32_t n, std::int32_t k,
                                         float best) {
  if (n <= k) return 0;
  const std::int32_t enough = k + k / 4 + 4;
  std::uint32_t high = ordered_logit(best);
  std::uint32_t low = high;
  std::int32_t count = count_groups(keys, n, low);
  for (float step = 1.0F; count < k; step *= 2.0F) {
    high = low;
    const float next = best - step;
    low = next < -kMaxFloat || next != next ? 0U : ordered_logit(next);
    count = count_groups(keys, n, low);
  }
  while (count > enough && high - low > 1U) {
    const std::uint32_t middle = low + (high - low) / 2U;
    const std::int32_t n_middle = count_groups(keys, n, middle);
    if (n_middle >= k) {
      low = middle;
      count = n_middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Fills shared.found with the keys of all logits that reach the key. False: there are too many.
__device__ bool collect(const StepKernelArguments& a, const std::uint64_t* keys, Shared& shared,
                        std::uint64_t threshold) {
  const std::int32_t n = (a.n_vocab + kGroup - 1) / kGroup;
  if (threadIdx.x == 0) shared.n_hot = shared.n_found = 0;
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) {
    if (keys[i] < threshold) continue;
    const std::int32_t slot = atomicAdd(&shared.n_hot, 1);
    if (slot < kMaxHot) shared.hot[slot] = i;
  }
  __syncthreads();
  if (shared.n_hot > kMaxHot) return false;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32U);
  for (std::int32_t i = threadIdx.x / 32; i < shared.n_hot; i += kThreads / 32) {
    const std::int32_t token = shared.hot[i] * kGroup + lane;
    const std::uint64_t key = token < a.n_vocab ? key_of(a.logits[token], token) : 0U;
    const bool reaches = key != 0U && key >= threshold;
    const std::uint32_t lanes = __ballot_sync(0xffffffffU, reaches);
    std::int32_t base = 0;
    if (lane == 0) base = atomicAdd(&shared.n_found, __popc(lanes));
    base = __shfl_sync(0xffffffffU, base, 0);
    const std::int32_t slot = base + __popc(lanes & ((1U << lane) - 1U));
    if (reaches && slot < kMaxFound) shared.found[slot] = key;
  }
  __syncthreads();
  return shared.n_found <= kMaxFound;
}

// The k-th best key of the row, by bisection over the keys: slow, for rows full of equal logits.
__device__ std::uint64_t exact_threshold(const StepKernelArguments& a, std::int32_t k) {
  std::uint64_t low = 0;
  for (std::uint64_t bit = 1ULL << 63; bit != 0U; bit >>= 1) {
    const std::uint64_t middle = low | bit;
    std::int32_t count = 0;
    for (std::int32_t base = 0; base < a.n_vocab; base += kThreads) {
      const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x);
      count += __syncthreads_count(i < a.n_vocab && key_of(a.logits[i], i) >= middle);
    }
    if (count >= k) low = middle;
  }
  return low;
}

// The k best candidates in descending order into shared.list; returns how many. The whole block.
__device__ std::int32_t select_top(const StepKernelArguments& a, const std::uint64_t* keys,
                                   Shared& shared, std::int32_t k, float best) {
  const std::int32_t n = (a.n_vocab + kGroup - 1) / kGroup;
  const auto threshold = static_cast<std::uint64_t>(group_threshold(keys, n, k, best)) << 32;
  if (!collect(a, keys, shared, threshold)) collect(a, keys, shared, exact_threshold(a, k));
  const std::int32_t n_found = shared.n_found;
  for (std::int32_t i = threadIdx.x; i < n_found; i += kThreads) {
    const std::uint64_t mine = shared.found[i];
    std::int32_t rank = 0;
    for (std::int32_t j = 0; j < n_found; ++j) rank += shared.found[j] > mine ? 1 : 0;
    if (rank < k) shared.list[rank] = {token_of(mine), a.logits[token_of(mine)], 0.0F};
  }
  __syncthreads();
  return min(n_found, k);
}

__device__ void apply_link(Candidates& c, SamplerKind kind, DeviceSampling& s) {
  const SamplingParams& p = s.params;
  switch (kind) {
    case SamplerKind::kPenalties:
      return penalise(c, s.counts, s.penalties);
    case SamplerKind::kTopNSigma:
      return ban_below_n_sigma(c, p.top_n_sigma);
    case SamplerKind::kTopK:
      return keep_top_k(c, p.top_k);
    case SamplerKind::kTypicalP:
      return keep_typical_p(c, p.typical_p, p.min_keep);
    case SamplerKind::kTopP:
      return keep_top_p(c, p.top_p, p.min_keep);
    case SamplerKind::kMinP:
      return keep_min_p(c, p.min_p, s.log_min_p, p.min_keep);
    case SamplerKind::kXtc:
      if (xtc_strikes(c.size, p.xtc_probability, s.streams.xtc)) {
        exclude_top_choices(c, p.xtc_threshold, p.min_keep);
      }
      return;
    case SamplerKind::kTemperature:
      return apply_dynamic_temperature(c, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
    case SamplerKind::kDry:
      return;  // requests with DRY are sampled on the host
  }
}

// The chain after the selection, and the draw. One thread. -1: nothing can be drawn.
__device__ TokenId draw_token(DeviceSampling& s, Shared& shared, std::int32_t n) {
  Candidates c{shared.list, shared.scratch, n, true, false};
  for (std::int32_t i = 0; i < s.n_links; ++i) apply_link(c, s.links[i], s);
  if (c.size == 0 || !(max_logit(c) > -kInfinity)) return -1;
  const std::int32_t drawn = draw_softmax(c, s.streams.rng);
  return drawn < 0 ? -1 : c.data[drawn].token;
}

// The token joins the text that the penalties see. One thread.
__device__ void accept(DeviceSampling& s, TokenId token) {
  if (s.penalty_last_n == 0) return;
  count_token(s.counts, token);
  if (s.history_size >= s.penalty_last_n) {
    uncount_token(s.counts, s.history[s.history_size - s.penalty_last_n]);
  }
  s.history[s.history_size++] = token;
}

// Publishes the step's token, then feeds it to the next step or leaves the loop. One thread.
__device__ void publish(const StepKernelArguments& a, TokenId token, bool stop) {
  LoopControl& control = *a.control;
  const std::int32_t step = control.step;
  std::int32_t n_published = step;
  LoopExit exit = LoopExit::kNonFinite;
  if (token >= 0) {
    accept(*a.sampling, token);
    n_published = step + 1;
    control.step = n_published;
    const bool ends = (a.end_tokens[token / 32] >> (token % 32) & 1U) != 0U;
    exit = ends                              ? LoopExit::kEndToken
           : n_published >= control.n_steps ? LoopExit::kSteps
           : stop                            ? LoopExit::kStopped
                                             : LoopExit::kNone;
    a.mailbox->token[step] = token;
  }
  if (exit == LoopExit::kNone) {
    const std::int32_t cell = control.cell[n_published];
    *a.inputs.token = token;
    *a.inputs.position = control.position + n_published;
    *a.inputs.k_index = control.first_cell + cell;
    *a.inputs.v_index = control.first_cell + cell;
    a.inputs.mask[cell] = 0;  // +0.0 in F16: visible
  } else {
    control.exited = 1;
  }
  // The token is in host memory before the count that announces it.
  __threadfence_system();
  a.mailbox->progress = static_cast<std::uint64_t>(exit) << 32 | static_cast<unsigned>(n_published);
  if (a.loops) cudaGraphSetConditional(a.loop, exit == LoopExit::kNone ? 1U : 0U);
}

__global__ void __launch_bounds__(kThreads) draw_and_feed(const StepKernelArguments a) {
  extern __shared__ std::uint64_t keys[];  // n_groups of them, then Shared
  const std::int32_t n = (a.n_vocab + kGroup - 1) / kGroup;
  Shared& shared = *reinterpret_cast<Shared*>(keys + n);
  // Only launches that ran ahead of an exit find it set.
  if (a.control->exited != 0) return;
  if (threadIdx.x == 0) shared.best = 0;
  if (threadIdx.x == kThreads - 1) shared.stop = a.mailbox->stop;  // a bus away: asked for early
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) keys[i] = a.group_best[i];
  __syncthreads();
  adjust_row(a, keys);
  std::uint64_t best = 0;
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) best = greater(best, keys[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    best = greater(best, __shfl_xor_sync(0xffffffffU, best, offset));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(reinterpret_cast<unsigned long long*>(&shared.best), best);
  }
  __syncthreads();
  const bool legal = *a.illegal == 0 && logit_of(shared.best) > -kInfinity;
  std::int32_t n_listed = 0;
  if (legal) n_listed = select_top(a, keys, shared, a.sampling->top_k, logit_of(shared.best));
  if (threadIdx.x != 0) return;
  *a.illegal = 0;
  publish(a, legal ? draw_token(*a.sampling, shared, n_listed) : -1, shared.stop != 0);
}

__global__ void index_counts(DeviceSampling* sampling, std::int32_t n_counts) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n_counts) sampling->counts.index[sampling->counts.entries[i].token] = i;
}

std::size_t shared_bytes(std::int32_t n_vocab) {
  return static_cast<std::size_t>(n_groups(n_vocab)) * sizeof(std::uint64_t) + sizeof(Shared);
}

}  // namespace

std::int32_t n_groups(std::int32_t n_vocab) noexcept { return (n_vocab + kGroup - 1) / kGroup; }

void prepare_step_kernels(std::int32_t n_vocab) {
  if (cudaFuncSetAttribute(draw_and_feed, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes(n_vocab))) != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error("the vocabulary is too large for the device's shared memory");
  }
}

void launch_step_kernels(const StepKernelArguments& a, cudaStream_t stream) {
  const std::int32_t n_threads = (a.n_vocab + 3) / 4;
  const auto n_blocks = static_cast<unsigned>((n_threads + kScanThreads - 1) / kScanThreads);
  scan_row<<<n_blocks, kScanThreads, 0, stream>>>(a.logits, a.n_vocab, a.group_best, a.illegal);
  cuda_check(cudaGetLastError(), "scan_row");
  draw_and_feed<<<1, kThreads, shared_bytes(a.n_vocab), stream>>>(a);
  cuda_check(cudaGetLastError(), "draw_and_feed");
}

void launch_index_counts(DeviceSampling* sampling, std::int32_t n_counts, cudaStream_t stream) {
  if (n_counts == 0) return;
  constexpr std::int32_t kBlock = 256;
  const auto n_blocks = static_cast<unsigned>((n_counts + kBlock - 1) / kBlock);
  index_counts<<<n_blocks, kBlock, 0, stream>>>(sampling, n_counts);
  cuda_check(cudaGetLastError(), "index_counts");
}

}  // namespace unpaced
