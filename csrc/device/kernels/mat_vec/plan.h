// How a mat-vec is cut up for a launch: chunks of rows, slices of a row, shared memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/compact_inputs.h"
#include "device/kernels/weights/lane_quads.h"

namespace unpaced::mat_vec {

inline constexpr std::int32_t kBlockThreads = 256;
inline constexpr std::int32_t kProducerThreads = 32;
inline constexpr std::int32_t kStagesMax = 8;
inline constexpr std::int32_t kTeamsMax = kBlockThreads / 32;

// What a format's type says (k_quants.h), as values.
struct FormatFacts {
  std::int32_t values;  // of a block
  std::int32_t bytes;
  std::int32_t threads;       // of ggml's that share a block, or of quads of them
  std::int32_t input_bytes;   // of a step in shared memory (stored_inputs.h)
  std::int32_t alignment;     // of a block
  std::int32_t source_bytes;  // of the input, for one block
  std::int32_t lane_threads;  // ggml's threads of which a lane does the work
};

// Of a format for tensor cores: eight columns' records are what a step's inputs take.
template <class Format, class Record>
constexpr FormatFacts tensor_facts_of() {
  return {
      Format::kValues,
      Format::kBytes,
      Format::kThreads,
      Format::kValues * kLanes / Format::kThreads / kRecordValues * Record::kBytes / kTileColumns,
      Format::kAlignment,
      Format::kSources * int{sizeof(typename Format::Source)},
      1};
}

template <class Format>
constexpr FormatFacts facts_of() {
  return {Format::kValues,
          Format::kBytes,
          Format::kThreads,
          StoredInputs<Format>::kStepBytes,
          Format::kAlignment,
          Format::kSources * int{sizeof(typename Format::Source)},
          kIsQuad<Format> ? kQuad : 1};
}

// A kernel (product.h: Shape), and how it is launched.
struct Build {
  std::int32_t rows = 2;     // of a chunk: 1 (of quads), 2 or 4; 16 of tensor cores
  std::int32_t columns = 1;  // 1, 2, 4 or 8
  bool wide = false;         // teams of as many warps as ggml has
  bool held = false;         // inputs stay in registers
  bool quads = false;        // lanes do four of ggml's threads' work each
  bool producer = false;     // a warp of each block does nothing but fetch
  bool compact = false;      // inputs take less shared memory (compact_inputs.h; byte records)
  bool tensor = false;       // tensor cores multiply (block/tile_work.h)
  std::int32_t blocks_per_multiprocessor = 1;
  // Two: a block leaves room for one of the next launch, which then fetches its first weights
  // beside it.
  std::int32_t launches_at_once = 1;
  std::int32_t stage_bytes = 4608;  // about so much of a chunk is fetched at once

  bool operator==(const Build&) const = default;
};

struct Plan {
  Task task;
  std::int32_t n_thread_blocks = 0;
  std::int32_t shared_bytes = 0;  // dynamic
  std::int32_t warps = 0;         // ggml's
};

// Two of one launch.
struct PlanPair {
  Plan first;
  Plan second;
};

// Rows' values whose inputs a lane's registers can hold.
inline constexpr std::int32_t kHeldValues = 4096;

[[nodiscard]] constexpr bool is_quantised(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBf16;
}

// How many warps ggml's kernel for order_columns has (mmvq.cu: calc_nwarps; mmvf.cu:
// launch_mul_mat_vec_f_cuda). 0: more than one answer, or a kernel of another kind.
[[nodiscard]] std::int32_t ggml_warps(const MatVec& mat_vec, const Card& card);

// Nothing if shared memory does not suffice for this build. `warps` are ggml's; of all the card's
// blocks of threads it takes `share` at most.
[[nodiscard]] std::optional<Plan> plan_mat_vec(const MatVec& mat_vec, const FormatFacts& format,
                                               std::int32_t warps, const Build& build,
                                               const Card& card, double share = 1);

}  // namespace unpaced::mat_vec
