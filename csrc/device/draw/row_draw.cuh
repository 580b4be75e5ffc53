// From a row of logits to its token, whatever then becomes of it. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/certain_draw.cuh"
#include "device/draw/logprob_report.cuh"
#include "device/draw/row_selection.cuh"
#include "device/draw/sample_kernels.h"
#include "device/draw/text_penalties.cuh"
#include "device/draw/warp_chain.cuh"
#include "device/draw/wide_draw.cuh"

namespace unpaced {
namespace {

// What the end of a step needs of the control block, read at its beginning.
struct StepPlan {
  std::int32_t step;
  std::int32_t n_steps;
  std::int32_t position;
  std::int32_t next_cell;
  std::int64_t first_cell;
  std::uint32_t stop;  // a bus away
};

__device__ StepPlan read_plan(const LaneControl& control, std::uint32_t stop) {
  StepPlan plan{};
  plan.stop = stop;
  plan.step = control.step;
  plan.n_steps = control.n_steps;
  plan.position = control.position;
  plan.first_cell = control.first_cell;
  plan.next_cell = control.cell[min(plan.step + 1, kMaxSteps - 1)];
  return plan;
}

// Why the row's steps end with this token, -1: none could be drawn.
__device__ LoopExit exit_after(const StepRow& row, const StepPlan& plan, TokenId token) {
  if (token < 0) return LoopExit::kNonFinite;
  const bool pauses = (row.pause_tokens[token / 32] >> (token % 32) & 1U) != 0U;
  return pauses                          ? LoopExit::kPause
         : plan.step + 1 >= plan.n_steps ? LoopExit::kSteps
         : plan.stop != 0U               ? LoopExit::kStopped
                                         : LoopExit::kNone;
}

// The token becomes the row's next input. One thread.
__device__ void feed(const StepRow& row, const StepPlan& plan, TokenId token) {
  *row.inputs.token = token;
  *row.inputs.position = plan.position + plan.step + 1;
  *row.inputs.k_index = plan.first_cell + plan.next_cell;
  *row.inputs.v_index = plan.first_cell + plan.next_cell;
  row.inputs.mask[plan.next_cell] = 0;  // +0.0 in F16: visible
}

// The first of the four logits that this thread of a scan has.
__device__ __forceinline__ std::int32_t first_of_four() {
  return static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
}

// -inf beyond the vocabulary.
__device__ __forceinline__ void read_four(const float* logits, std::int32_t n_vocab,
                                          std::int32_t first, float (&x)[4]) {
  if (first + 3 < n_vocab) {
    const float4 four = *reinterpret_cast<const float4*>(logits + first);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    for (int i = 0; i < 4; ++i) x[i] = first + i < n_vocab ? logits[first + i] : -kInfinity;
  }
}

__device__ __forceinline__ void write_four(float* logits, std::int32_t n_vocab, std::int32_t first,
                                           const float (&x)[4]) {
  if (first + 3 < n_vocab) {
    *reinterpret_cast<float4*>(logits + first) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    for (int i = 0; i < 4; ++i) {
      if (first + i < n_vocab) logits[first + i] = x[i];
    }
  }
}

// The best key of every group, four logits a thread, eight threads a group.
__device__ __forceinline__ void scan_four(const float (&x)[4], std::int32_t n_vocab,
                                          std::int32_t first, std::uint64_t* group_best,
                                          std::int32_t* illegal) {
  std::uint64_t best = 0;
  bool legal = true;
  for (int i = 0; i < 4; ++i) {
    legal = legal && x[i] < kInfinity;
    if (first + i < n_vocab) best = greater(best, key_of(x[i], first + i));
  }
  for (int offset = 4; offset > 0; offset /= 2) {
    best = greater(best, __shfl_xor_sync(kAllLanes, best, offset));
  }
  if (threadIdx.x % 8 == 0 && first < n_vocab) group_best[first / kGroup] = best;
  if (!legal) *illegal = 1;
}

__device__ __forceinline__ void scan(const float* logits, std::int32_t n_vocab,
                                     std::uint64_t* group_best, std::int32_t* illegal) {
  const std::int32_t first = first_of_four();
  float x[4];
  read_four(logits, n_vocab, first, x);
  scan_four(x, n_vocab, first, group_best, illegal);
}

// The best key of the row. The whole block; the same for every thread.
__device__ std::uint64_t best_key(const std::uint64_t* keys, std::int32_t n, Shared& shared) {
  std::uint64_t best = 0;
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) best = greater(best, keys[i]);
  best = warp_greatest(best);
  if (threadIdx.x % 32 == 0) shared.best_of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  return warp_greatest(shared.best_of_warp[threadIdx.x % 32]);
}

// The chain on the k best, by one warp of this block. Every thread of the warp has the token.
__device__ TokenId draw_narrow(const StepRow& row, const std::uint64_t* keys, Shared& shared,
                               std::uint64_t best) {
  const std::int32_t n = select_top(row, keys, shared, row.sampling->top_k, best);
  return threadIdx.x < 32 ? warp_chain(*row.sampling, shared, n) : -1;
}

// Fills the wide list: the n_best of shared.list, by this block alone, or the whole row.
__device__ void fill_list(const StepRow& row, WideChain& w, std::int32_t n_best) {
  Item* items = w.list.items;
  if (w.s.top_k > 0) {
    w.list.size = n_best;
    w.list.sorted = true;
    for (std::int32_t i = threadIdx.x; i < w.list.size; i += kThreads) {
      items[i] = {w.shared.list[i].logit, w.shared.list[i].token};
    }
  } else {
    w.list.size = row.n_vocab;
    w.list.by_token = true;
    w.list.knows_best = true;
    w.team.sync();  // the row has its penalties
    float greatest = -kInfinity;
    for (std::int32_t i = w.team.thread(); i < row.n_vocab; i += w.team.n_threads()) {
      items[i] = {row.logits[i], i};
      greatest = fmaxf(greatest, items[i].logit);
    }
    w.list.best = team_max(w.team, greatest, -kInfinity);
  }
  w.team.sync();
}

// A token, -1: nothing can be drawn. Every thread of the first block has it; the others may leave
// early.
__device__ TokenId draw_wide(const StepRow& row, const std::uint64_t* keys, Team& team,
                             Shared& shared, std::uint64_t best, StepLogprobs* report) {
  DeviceSamplerState& s = *row.sampling;
  const WideScratch& scratch = team_room().scratch;
  const std::int32_t n_best = s.top_k > 0 ? select_top(row, keys, shared, s.top_k, best) : 0;
  if (s.nucleus.applies) {
    const TokenId token = draw_nucleus(s, row.logits, team, shared, best, n_best);
    if (token >= 0) return token;
  }
  WideChain w{team, {.items = scratch.items[0], .spare = scratch.items[1]}, s, shared};
  fill_list(row, w, n_best);
  if (w.leave()) return -1;
  const std::int32_t n_links = s.n_links;
  for (std::int32_t i = 0; i < n_links; ++i) {
    wide_link(w, s.links[i]);
    if (w.leave() || (w.team.n_blocks == 1 && w.team.rank != 0)) return -1;
  }
  const std::int32_t mirostat = s.params.mirostat;
  const WideDrawn drawn =
      mirostat == 0 ? wide_draw_softmax(w, report != nullptr) : wide_draw_mirostat(w, mirostat);
  if (drawn.index < 0) return -1;
  const TokenId token = w.list.items[drawn.index].token;
  if (report != nullptr) report_list(w, drawn, *report);
  return token;
}

// A block's part in a draw.
struct Drawing {
  const StepRow& row;
  DeviceSamplerState& s;
  Shared& shared;
  std::uint64_t* keys;  // of the row's groups: each block's own copy, or where they are
  std::int32_t n_keys;
  Team& team;
  std::uint64_t best;    // of the keys
  bool legal;            // all logits are
  StepLogprobs* report;  // null: no probabilities are wanted
  double log_sum;        // of the row, for probabilities before the chain
};

// Brings the keys near, and draws the random number. Returns what the first thread needs later.
__device__ StepPlan read_step(Drawing& d) {
  StepPlan plan{};
  if (d.team.rank == 0 && threadIdx.x == 0) {
    plan = read_plan(*d.row.control, d.row.mailbox->stop);
  }
  if (d.team.rank == 0 && threadIdx.x == kThreads - 1 && d.s.params.mirostat == 0) {
    d.shared.u = d.s.streams.rng.next_f64();
    *d.s.scratch.u = d.shared.u;
  }
  if (threadIdx.x == 0) d.shared.team.scratch = d.s.scratch;
  const bool are_near = !kIsCompact || d.keys != d.row.group_best;
  for (std::int32_t i = threadIdx.x; are_near && i < d.n_keys; i += kThreads) {
    d.keys[i] = d.row.group_best[i];
  }
  d.legal = *d.row.illegal == 0;
  d.team.sync();
  d.best = best_key(d.keys, d.n_keys, d.shared);
  if (!are_near) d.team.sync();  // the first block may change them from here on
  return plan;
}

// Probabilities of the row as the model gave it.
__device__ void report_row(Drawing& d) {
  const LogprobKind kind = d.s.logprobs.kind;
  if (kind != LogprobKind::kNone) d.report = d.s.logprobs.out + d.row.control->step;
  if (kind == LogprobKind::kBefore && d.legal) {
    d.log_sum = row_log_sum(d.team, d.row, logit_of(d.best));
    if (d.team.rank == 0) {
      report_best(d.row, d.keys, d.shared, d.best, d.log_sum, *d.report);
    }
  }
}

// Biases, penalties and DRY.
__device__ void adjust(Drawing& d) {
  if (d.s.dry.last_n > 0) find_dry(d.s, d.shared);
  adjust_row(d.row, d.keys);
  if (changes_row(d.s)) d.best = best_key(d.keys, d.n_keys, d.shared);
}

// The token, -1: nothing can be drawn. The first thread of the first block has it.
__device__ TokenId draw(Drawing& d) {
  if (!d.legal) return -1;
  if (d.s.is_wide) {
    StepLogprobs* after = d.s.logprobs.kind == LogprobKind::kAfter ? d.report : nullptr;
    return draw_wide(d.row, d.keys, d.team, d.shared, d.best, after);
  }
  return logit_of(d.best) > -kInfinity ? draw_narrow(d.row, d.keys, d.shared, d.best) : -1;
}

// What is told of the token beside itself is complete before finish_step(). One thread.
__device__ void finish_report(Drawing& d, TokenId token) {
  if (d.report == nullptr) return;
  if (d.s.logprobs.kind == LogprobKind::kBefore && token >= 0) {
    d.report->drawn = static_cast<float>(d.s.scratch.raw[token] - d.log_sum);
  }
  __threadfence_system();  // before the entry; the block's other threads were waited for
}

struct DrawnToken {
  StepPlan plan;
  TokenId token;  // -1: none could be drawn
};

// The row's token, by the blocks of its team: a cluster, or all blocks of the grid that have the
// row. The first of them has the row's key, list and text to itself. True for its first thread,
// which alone gets what was drawn and ends the step; no other thread touches the row any more.
//
//   phase       blocks                      then
//   read_step   all                         sync(): keys, random number and scratch are seen
//   report_row  all; the pairs: the first   sync() in team_sum(): all are through with the row
//               Where the list is the k best only the first block stays.
//   adjust      the first                   the wide draw's first sync(): the row has its penalties
//   draw        all, fewer as the list      __syncthreads(): every thread is through with the row,
//               becomes short               the text and the report
__device__ __forceinline__ bool draw_row(const StepRow& row, bool keys_are_far, bool needs_cluster,
                                         DrawnToken& drawn) {
  DeviceSamplerState& s = *row.sampling;
  const auto rank = static_cast<std::int32_t>(blockIdx.x);
  Shared& shared = reinterpret_cast<Shared&>(team_room());
  Team team{.rank = rank, .n_blocks = needs_cluster ? static_cast<std::int32_t>(gridDim.x) : 1};
  Drawing d{.row = row,
            .s = s,
            .shared = shared,
            .keys = kIsCompact && keys_are_far ? row.group_best
                                               : reinterpret_cast<std::uint64_t*>(&shared + 1),
            .n_keys = (row.n_vocab + kGroup - 1) / kGroup,
            .team = team};
  drawn.plan = read_step(d);
  report_row(d);
  if (rank > 0 && s.top_k > 0) return false;
  if (s.top_k > 0) team.n_blocks = 1;
  if (rank == 0) adjust(d);
  drawn.token = draw(d);
  if (rank > 0) return false;
  __syncthreads();
  if (s.dry.last_n > 0) forget_dry(s);
  if (threadIdx.x != 0) return false;
  if (!d.legal) *row.illegal = 0;
  finish_report(d, drawn.token);
  return true;
}

}  // namespace
}  // namespace unpaced
