// The step kernels without a model: a row of logits goes in, a token comes out.
#pragma once

#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/draw/sample_kernels.h"
#include "device/lane/device_sampler.h"
#include "device/state/cuda_memory.h"

namespace unpaced::test {

// What a program's first arguments ask of the launch: team=block|grid|cluster, shared=KIB. They are
// taken from the command line.
struct AskedLimits {
  AskedLimits(int& argc, char**& argv) {
    for (; argc > 1 && std::strchr(argv[1], '=') != nullptr; --argc, ++argv) {
      const std::string option = argv[1];
      if (option.starts_with("shared=")) {
        limits.shared_bytes = static_cast<std::size_t>(std::atoi(option.c_str() + 7)) * 1024;
        continue;
      }
      for (const DrawTeam team : {DrawTeam::kBlock, DrawTeam::kGrid, DrawTeam::kCluster}) {
        if (option != std::string("team=") + name_of(team)) continue;
        limits.team = team;
        has_team = true;
      }
      if (!has_team) throw std::runtime_error("not an option: " + option);
    }
  }

  DrawLimits limits;
  bool has_team = false;
};

class StepRig {
 public:
  StepRig(std::int32_t n_vocab, std::int32_t n_ctx, const DrawLimits& limits = {})
      : n_vocab_(n_vocab),
        draw(prepare_step_kernels(n_vocab, limits)),
        sampler(n_vocab, n_ctx),
        logits_(static_cast<std::size_t>(n_vocab)),
        group_best_(static_cast<std::size_t>(n_groups(n_vocab))),
        illegal_(1),
        pause_tokens_(static_cast<std::size_t>(n_vocab) / 32 + 1),
        control_(1),
        mailbox_(1),
        words_(16),
        mask_(4096) {
    fill_now(illegal_.data(), 0, sizeof(std::int32_t));
    fill_now(pause_tokens_.data(), 0, pause_tokens_.size() * sizeof(std::uint32_t));
    fill_now(control_.data(), 0, sizeof(LaneControl));
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  ~StepRig() { cudaStreamDestroy(stream_); }
  StepRig(const StepRig&) = delete;
  StepRig& operator=(const StepRig&) = delete;

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  void set_row(std::span<const float> row) {
    cuda_check(cudaMemcpyAsync(logits_.data(), row.data(), row.size_bytes(), cudaMemcpyHostToDevice,
                               stream_),
               "cudaMemcpyAsync");
  }

  // Before the first of at most kMaxSteps steps of a launch.
  void start(std::int32_t n_steps) {
    LaneControl control{};
    control.n_steps = n_steps;
    copy_up_now(control_.data(), &control, sizeof control);
  }

  void enqueue_step() { launch_step_kernels(arguments(), draw, stream_); }

  // The token of step `i`, -1 if none could be drawn.
  [[nodiscard]] TokenId token(std::int32_t i) const {
    cuda_check(cudaStreamSynchronize(stream_), "the step kernels");
    const std::uint64_t entry = mailbox_.data()->entry[i];
    return entry_exit(entry) == LoopExit::kNonFinite ? -1 : entry_token(entry);
  }

 private:
  [[nodiscard]] StepKernelArguments arguments() const {
    const StepInputs inputs{words_.data(), words_.data() + 1,
                            reinterpret_cast<std::int64_t*>(words_.data() + 2),
                            reinterpret_cast<std::int64_t*>(words_.data() + 4), mask_.data()};
    return {.rows = {{.logits = logits_.data(),
                      .n_vocab = n_vocab_,
                      .group_best = group_best_.data(),
                      .illegal = illegal_.data(),
                      .pause_tokens = pause_tokens_.data(),
                      .sampling = sampler.device(),
                      .control = control_.data(),
                      .mailbox = mailbox_.device(),
                      .inputs = inputs}},
            .loop = {},
            .loops = false,
            .keys_are_far = draw.keys_are_far};
  }

  const std::int32_t n_vocab_;

 public:
  const DrawLaunch draw;
  DeviceSampler sampler;

 private:
  DeviceArray<float> logits_;
  DeviceArray<std::uint64_t> group_best_;
  DeviceArray<std::int32_t> illegal_;
  DeviceArray<std::uint32_t> pause_tokens_;
  DeviceArray<LaneControl> control_;
  PinnedArray<LaneMailbox> mailbox_;
  DeviceArray<std::int32_t> words_;
  DeviceArray<std::uint16_t> mask_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace unpaced::test
