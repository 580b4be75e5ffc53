#include <stdexcept>

#include "device/kernels/launch.cuh"
#include "device/kernels/rows/norm_row.h"
#include "device/kernels/rows/rounding.cuh"
#include "device/kernels/rows/row_team.cuh"

namespace unpaced {
namespace {

constexpr int kFewThreads = 256;
constexpr int kManyThreads = 1024;
constexpr int kFewValues = 1024;  // below: fewer threads
// A multiprocessor by itself takes as long for what a row's threads issue as for what they wait
// for. How many share a row was measured (docs/bench/device-kernels.md).
constexpr int kBlocksOfOne = 4;
constexpr int kBlocksOfSeveral = 8;  // a row, where there are several
constexpr int kPerThreadMax = kNormRowMax / kManyThreads;

// Thread t has the values t, t + kThreads, …: a warp has 32 that follow one another, which are a
// block of q8.
template <class Team, int kPerThread>
struct RowValues {
  float at[kPerThread];

  __device__ static int column(int k) { return Team::thread() + k * Team::kThreads; }

  __device__ void load(const float* from, int n) {
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) at[k] = column(k) < n ? from[column(k)] : 0.0f;
  }

  // Several experts' values at once, and the last one's again in the place of those that are not
  // there: no branch stands between loads, which come from far.
  __device__ void load_sum(const ExpertSum& sum, int n) {
    constexpr int kAtOnce = 8;
    float weights[kAtOnce];
    float rows[kPerThread][kAtOnce];
    float added[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      added[k] = sum.added[min(column(k), n - 1)];
      at[k] = 0.0f;
    }
    for (int first = 0; first < sum.n_experts; first += kAtOnce) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int expert = min(first + i, sum.n_experts - 1);
        weights[i] = sum.weights[expert];
#pragma unroll
        for (int k = 0; k < kPerThread; ++k)
          rows[k][i] = sum.experts[expert * n + min(column(k), n - 1)];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= sum.n_experts) break;
#pragma unroll
        for (int k = 0; k < kPerThread; ++k) {
          at[k] = first + i == 0 ? __fmul_rn(rows[k][i], weights[i])
                                 : __fmaf_rn(rows[k][i], weights[i], at[k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) at[k] = column(k) < n ? __fadd_rn(at[k], added[k]) : 0.0f;
  }

  __device__ void store(float* to, int n) const {
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      if (column(k) < n) to[column(k)] = at[k];
    }
  }
};

// `x` becomes its norm times the weights, plus a row.
template <class Team, int kPerThread>
__device__ void take_norm(RowValues<Team, kPerThread>& x, const RowValues<Team, kPerThread>& weight,
                          const float* added, int n_values, float epsilon, Team& team) {
  float tmp = 0.0f;
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const float xi = x.at[k];
    if (x.column(k) < n_values) tmp += xi * xi;
  }
  tmp = team.sum(tmp);
  const float mean = tmp / n_values;
  const float scale = rsqrtf(mean + epsilon);
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    if (x.column(k) >= n_values) continue;
    if (added != nullptr) {
      x.at[k] = scale * x.at[k] * weight.at[k] + added[x.column(k)];
    } else {
      x.at[k] = scale * x.at[k] * weight.at[k];
    }
  }
}

// Also the zeros behind the row's end: whole warps, as what is written is a multiple of 32, and no
// more of them than the threads have values, which are a multiple of the padding.
template <class Team, int kPerThread>
__device__ void round_row(const RowValues<Team, kPerThread>& x, int n_values, Q8Block* rounded,
                          const RecordColumn& column) {
  constexpr int kThreads = Team::kThreads;
  static_assert(kThreads * kPerThread % kQ8RowPadding == 0);
  constexpr int kAtOnce = kPerThread < 4 ? kPerThread : 4;
  const int n_rounded = n_with_padding(n_values);
#pragma unroll
  for (int k = 0; k < kPerThread; k += kAtOnce) {
    const int n_left = (n_rounded - x.column(k) + kThreads - 1) / kThreads;
    round_blocks<kAtOnce>(x.at + k, rounded + x.column(k) / kQ8Values, kThreads / kQ8Values, n_left,
                          column, x.column(k) / kQ8Values);
  }
}

// The same from row `i` on.
__device__ NormRow row_at(NormRow rows, std::int64_t i) {
  const std::int64_t at = i * rows.n_values;
  rows.first.input += at;
  for (RowNorm* norm : {&rows.first, &rows.second}) {
    norm->out += norm->out != nullptr ? at : 0;
    norm->added += norm->added != nullptr ? at : 0;
  }
  rows.rounded += rows.rounded != nullptr ? i * (n_with_padding(rows.n_values) / kQ8Values) : 0;
  return rows;
}

template <class Team, int kPerThread, bool kSums>
__global__ void __launch_bounds__(Team::kBlockThreads) norm_row(const NormRow rows) {
  using Values = RowValues<Team, kPerThread>;
  __shared__ typename Team::Shared shared;
  Team team(shared);
  const NormRow row = row_at(rows, Team::row());
  let_later_kernels_start(row.next_is_ours);
  const int n = row.n_values;
  Values first_weight;
  Values second_weight;
  first_weight.load(row.first.weight, n);
  const bool has_second = row.second.weight != nullptr;
  if (has_second) second_weight.load(row.second.weight, n);
  await_earlier_kernels();
  Values x;
  if constexpr (kSums) {
    x.load_sum(row.sum, n);
    const Values sum = x;
    take_norm(x, first_weight, row.first.added, n, row.first.epsilon, team);
    // All threads have met since they read.
    sum.store(row.sum.out, n);
  } else {
    x.load(row.first.input, n);
    take_norm(x, first_weight, row.first.added, n, row.first.epsilon, team);
  }
  if (row.first.out != nullptr) x.store(row.first.out, n);
  if (has_second) {
    take_norm(x, second_weight, row.second.added, n, row.second.epsilon, team);
    if (row.second.out != nullptr) x.store(row.second.out, n);
  }
  if (row.rounded != nullptr)
    round_row(x, n, row.rounded, record_column(row.records, Team::row(), n));
  end_writes(row.next_is_ours);
}

template <class Team, int kPerThread>
void enqueue_team(const NormRow& row, const Card& card, CUstream_st* stream) {
  const auto n_blocks = static_cast<unsigned>(row.n_rows * Team::kBlocks);
  const LaunchShape shape{.grid = dim3(n_blocks),
                          .block = dim3(Team::kBlockThreads),
                          .cluster = Team::kBlocks > 1 ? Team::kBlocks : 0U};
  if constexpr (Team::kBlocks != kBlocksOfSeveral) {  // a sum is of one row
    if (row.sum.experts != nullptr)
      return launch(norm_row<Team, kPerThread, true>, shape, card, stream, row);
  }
  launch(norm_row<Team, kPerThread, false>, shape, card, stream, row);
}

template <int kThreads, int kPerThread>
void enqueue(const NormRow& row, const Card& card, CUstream_st* stream) {
  if constexpr (kPerThread > kPerThreadMax) {
    throw std::runtime_error(why_no_norm_row(row.n_values));
  } else if (row.n_values > kThreads * kPerThread) {
    enqueue<kThreads, kPerThread * 2>(row, card, stream);
  } else if constexpr (kThreads == kManyThreads) {
    using One = ClusterTeam<kThreads, kBlocksOfOne>;
    using Several = ClusterTeam<kThreads, kBlocksOfSeveral>;
    if (card.compute < 90 || !can_start_early(norm_row<One, kPerThread, false>))
      enqueue_team<BlockTeam<kThreads>, kPerThread>(row, card, stream);
    else if (row.n_rows == 1)
      enqueue_team<One, kPerThread>(row, card, stream);
    else
      enqueue_team<Several, kPerThread>(row, card, stream);
  } else {
    enqueue_team<BlockTeam<kThreads>, kPerThread>(row, card, stream);
  }
}

}  // namespace

void enqueue_norm_row(const NormRow& row, const Card& card, CUstream_st* stream) {
  if (row.n_values < kFewValues) {
    enqueue<kFewThreads, 4>(row, card, stream);
  } else {
    enqueue<kManyThreads, 1>(row, card, stream);
  }
}

}  // namespace unpaced
