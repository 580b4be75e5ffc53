// Times the device's sampling kernels alone: a captured graph of steps on random logits.
//
//   nvcc -std=c++20 -O2 -arch=sm_90 -rdc=true --fmad=false -Icsrc tests/bench/device_sampling.cu
//   csrc/device/sample_kernels.cu -lcudadevrt -o /tmp/device_sampling && /tmp/device_sampling
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "device/cuda_memory.h"
#include "device/sample_kernels.h"

using namespace unpaced;

namespace {

constexpr std::int32_t kVocab = 128256;
constexpr int kStepsPerGraph = 100;
constexpr int kLaunches = 20;

struct Chain {
  const char* name;
  std::int32_t top_k;
  std::vector<SamplerKind> links;
  std::int32_t n_biases;
};

double microseconds_per_step(const Chain& chain) {
  DeviceArray<float> logits(kVocab);
  std::vector<float> row(kVocab);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  for (float& x : row) x = normal(random);
  cuda_check(
      cudaMemcpy(logits.data(), row.data(), row.size() * sizeof(float), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  DeviceArray<std::uint64_t> group_best(static_cast<std::size_t>(n_groups(kVocab)));
  DeviceArray<std::int32_t> illegal(1);
  DeviceArray<std::uint32_t> pause_tokens(kVocab / 32 + 1);
  DeviceArray<DeviceSampling> sampling(1);
  DeviceArray<LoopControl> control(1);
  PinnedArray<LoopMailbox> mailbox(1);
  DeviceArray<std::int32_t> words(16);
  DeviceArray<std::uint16_t> mask(4096);
  DeviceArray<LogitBias> biases(64);
  cuda_check(cudaMemset(illegal.data(), 0, 4), "cudaMemset");
  cuda_check(cudaMemset(pause_tokens.data(), 0, pause_tokens.size() * 4), "cudaMemset");
  std::vector<LogitBias> some;
  for (std::int32_t i = 0; i < chain.n_biases; ++i) some.push_back({i * 1777, 0.0F});
  if (!some.empty()) {
    cuda_check(cudaMemcpy(biases.data(), some.data(), some.size() * sizeof(LogitBias),
                          cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }
  DeviceSampling s{};
  s.n_vocab = kVocab;
  s.top_k = chain.top_k;
  s.log_min_p = -2.9957323F;
  s.biases = biases.data();
  s.n_biases = chain.n_biases;
  for (const SamplerKind kind : chain.links) s.links[s.n_links++] = kind;
  s.streams.rng.seed(1);
  cuda_check(cudaMemcpy(sampling.data(), &s, sizeof s, cudaMemcpyHostToDevice), "cudaMemcpy");
  LoopControl c{};
  c.n_steps = 1 << 30;
  const StepKernelArguments a{
      .logits = logits.data(),
      .n_vocab = kVocab,
      .group_best = group_best.data(),
      .illegal = illegal.data(),
      .pause_tokens = pause_tokens.data(),
      .sampling = sampling.data(),
      .control = control.data(),
      .mailbox = mailbox.device(),
      .inputs = {words.data(), words.data() + 1, reinterpret_cast<std::int64_t*>(words.data() + 2),
                 reinterpret_cast<std::int64_t*>(words.data() + 4), mask.data()},
      .loop = {},
      .loops = false};
  prepare_step_kernels(kVocab);
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < kStepsPerGraph; ++i) launch_step_kernels(a, stream);
  cuda_check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda_check(cudaEventCreate(&begin), "event");
  cuda_check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < kLaunches; ++i) {
    cuda_check(cudaMemcpyAsync(control.data(), &c, sizeof c, cudaMemcpyHostToDevice, stream), "c");
    cuda_check(cudaEventRecord(begin, stream), "event");
    cuda_check(cudaGraphLaunch(executable, stream), "launch");
    cuda_check(cudaEventRecord(end, stream), "event");
    cuda_check(cudaStreamSynchronize(stream), "run");
    float ms = 0.0F;
    cuda_check(cudaEventElapsedTime(&ms, begin, end), "time");
    times.push_back(ms * 1000.0F / kStepsPerGraph);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  using enum SamplerKind;
  const std::vector<SamplerKind> usual{kTopP, kMinP, kTemperature};
  for (const Chain& chain :
       {Chain{"greedy", 1, {}, 0}, Chain{"top-k 40", 40, {}, 0}, Chain{"default", 40, usual, 0},
        Chain{"default, 10 biases", 40, usual, 10}, Chain{"default, top-k 1000", 1000, usual, 0},
        Chain{"typical", 40, {kTypicalP, kTopP, kMinP, kTemperature}, 0}}) {
    std::printf("%-22s %6.2f us a step\n", chain.name, microseconds_per_step(chain));
  }
}
