// Which steps the decode thread computes without ggml's workers.
#pragma once

#include <cstdint>

namespace unpaced {

struct StepSize {
  std::int32_t n_tokens = 0;
  bool has_prompt = false;
  std::int32_t n_cells = 0;  // the most that a sequence of the step has before it
  std::int32_t n_read = 0;   // that attention reads for each token, whosever they are
};

// Where the front end has no core of its own, who sends requests while a prompt is computed waits
// for a worker that waits for the decode thread, and this one for the worker, at each of the
// graph's operations. So prompts that are short, and the steps right behind them, while the others
// that came at the same time are still read, are computed by the decode thread alone.
class ShortSteps {
 public:
  // `n_params`: the model's; 0: there are no such steps. `n_cell_values`: of a cell's keys, in all
  // layers, as many as heads have of queries.
  explicit ShortSteps(std::uint64_t n_params, std::uint64_t n_cell_values) noexcept
      : n_params_(n_params), n_cell_values_(n_cell_values) {}

  // Whether the next step, or batch of one, is one of them. Told of each, once.
  [[nodiscard]] bool next(const StepSize& step) noexcept;

 private:
  std::uint64_t n_params_;
  std::uint64_t n_cell_values_;
  std::int32_t n_left_ = 0;  // steps behind a prompt
};

}  // namespace unpaced
