// The kernels of steps under grammars without a model: rows of logits and masks go in, tokens come
// out.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "device/draw/sample_kernels.h"
#include "device/lane/device_sampler.h"
#include "device/state/cuda_memory.h"
#include "grammar/mask_board.h"

namespace unpaced::test {

// One row's memory, as a Lane has it.
struct RigRow {
  RigRow(std::int32_t n_vocab, std::int32_t n_ctx)
      : sampler(n_vocab, n_ctx),
        group_best(static_cast<std::size_t>(n_groups(n_vocab))),
        illegal(1),
        pause_tokens(static_cast<std::size_t>(n_vocab) / 32 + 1),
        control(1),
        mailbox(1),
        kept(static_cast<std::size_t>(n_vocab)),
        board_memory(mask_board_words(n_vocab)),
        board({board_memory.data(), board_memory.size()}, board_memory.device()) {
    fill_now(illegal.data(), 0, sizeof(std::int32_t));
    fill_now(pause_tokens.data(), 0, pause_tokens.size() * sizeof(std::uint32_t));
  }

  [[nodiscard]] LaneRow shared(bool has_grammar) const {
    return {.group_best = group_best.data(),
            .illegal = illegal.data(),
            .pause_tokens = pause_tokens.data(),
            .sampling = sampler.device(),
            .control = control.data(),
            .mailbox = mailbox.device(),
            .mask_board = has_grammar ? board.reader() : nullptr,
            .kept_row = kept.data()};
  }

  DeviceSampler sampler;
  DeviceArray<std::uint64_t> group_best;
  DeviceArray<std::int32_t> illegal;
  DeviceArray<std::uint32_t> pause_tokens;
  DeviceArray<LaneControl> control;
  PinnedArray<LaneMailbox> mailbox;
  DeviceArray<float> kept;
  PinnedArray<std::uint32_t> board_memory;
  MaskBoard board;
};

class MaskedRig {
 public:
  MaskedRig(std::int32_t n_vocab, std::int32_t n_ctx, std::int32_t n_rows)
      : n_vocab_(n_vocab),
        n_rows_(n_rows),
        draw_(prepare_masked_kernels(n_vocab, n_rows)),
        logits_(static_cast<std::size_t>(n_vocab) * static_cast<std::size_t>(n_rows)),
        rows_on_device_(static_cast<std::size_t>(n_rows)),
        words_(static_cast<std::size_t>(n_rows) * 2),
        cells_(static_cast<std::size_t>(n_rows) * 2),
        mask_(static_cast<std::size_t>(n_rows) * kCells) {
    for (std::int32_t i = 0; i < n_rows; ++i) rows.emplace_back(n_vocab, n_ctx);
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  ~MaskedRig() { cudaStreamDestroy(stream_); }
  MaskedRig(const MaskedRig&) = delete;
  MaskedRig& operator=(const MaskedRig&) = delete;

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  // Before the first of at most kMaxSteps steps. has_grammar: by row. first: the mask board's step
  // of the first one.
  void start(const std::vector<bool>& has_grammar, std::uint32_t first) {
    std::vector<LaneRow> shared;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      LaneControl control{};
      control.n_steps = kMaxSteps;
      control.mask_step = first;
      copy_up_now(rows[i].control.data(), &control, sizeof control);
      shared.push_back(rows[i].shared(has_grammar[i]));
    }
    copy_up_now(rows_on_device_.data(), shared.data(), shared.size() * sizeof(LaneRow));
  }

  // Enqueues the step of all rows, whose logits lie one after the other.
  void enqueue_step(std::span<const float> logits) {
    cuda_check(cudaMemcpyAsync(logits_.data(), logits.data(), logits.size_bytes(),
                               cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync");
    for (const RigRow& row : rows) {
      cuda_check(cudaMemsetAsync(&row.control.data()->exited, 0, sizeof(std::int32_t), stream_),
                 "cudaMemsetAsync");
    }
    const StepInputs inputs{words_.data(), words_.data() + n_rows_, cells_.data(),
                            cells_.data() + n_rows_, mask_.data()};
    launch_masked_kernels({.lanes = rows_on_device_.data(),
                           .n_rows = n_rows_,
                           .n_vocab = n_vocab_,
                           .logits = logits_.data(),
                           .inputs = inputs,
                           .n_kv = kCells,
                           .loop = {},
                           .loops = false,
                           .keys_are_far = draw_.keys_are_far},
                          draw_, stream_);
  }

  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "the step kernels"); }
  // Of a row's step that has been waited for.
  [[nodiscard]] std::uint64_t entry(std::size_t row, std::int32_t step) const {
    return rows[row].mailbox.data()->entry[step];
  }

  std::deque<RigRow> rows;

 private:
  static constexpr std::int32_t kCells = 4096;

  const std::int32_t n_vocab_;
  const std::int32_t n_rows_;
  const DrawLaunch draw_;
  DeviceArray<float> logits_;
  DeviceArray<LaneRow> rows_on_device_;
  DeviceArray<std::int32_t> words_;
  DeviceArray<std::int64_t> cells_;
  DeviceArray<std::uint16_t> mask_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace unpaced::test
