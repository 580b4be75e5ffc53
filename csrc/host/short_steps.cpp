#include "host/short_steps.h"

namespace unpaced {
namespace {

// Tokens times parameters: 6 ms of one core (Q8_0, AVX2), 1.3 times what two need.
constexpr std::uint64_t kWork = std::uint64_t{1} << 28;
// What a value of a cell's keys, and the one of its values, take of a token, in parameters: each
// twice as long as one. 32 streams with 112 tokens each before them were measured, and with 300.
constexpr std::uint64_t kCellWork = 4;
// A token of larger models takes longer alone than the front end needs between two.
constexpr std::uint64_t kParams = std::uint64_t{1} << 25;
// Steps that decode, behind a short prompt's: while requests that came with it are read, and all of
// a short answer. At their end the worker has to be woken, on a core that others want.
constexpr std::int32_t kStepsBehindPrompt = 32;
// ggml divides the attention of a lone token over the threads from there on, so that the last bits
// would follow the number of threads (llama.cpp 0c1e57098 ggml/src/ggml-cpu/ops.cpp:9490). Cells
// come in 256s.
constexpr std::int32_t kCellsOfLoneToken = 256;

}  // namespace

bool ShortSteps::next(const StepSize& step) noexcept {
  if (n_params_ == 0 || n_params_ > kParams) return false;
  const std::uint64_t n_token_work =
      n_params_ + kCellWork * n_cell_values_ * static_cast<std::uint64_t>(step.n_read);
  const bool is_little = static_cast<std::uint64_t>(step.n_tokens) * n_token_work <= kWork;
  if (step.has_prompt) {
    n_left_ = is_little ? kStepsBehindPrompt : 0;
  } else if (n_left_-- <= 0) {
    n_left_ = 0;
    return false;
  }
  return is_little && (step.n_tokens > 1 || step.n_cells < kCellsOfLoneToken);
}

}  // namespace unpaced
