// Times the device's sampling kernels alone: a captured graph of steps on random logits, for chains
// that cut early and chains that see the whole vocabulary. The flat row is as a model with random
// weights gives it, Gaussian with a variance of 1: min-p 0.05 keeps a tenth of the vocabulary,
// top-p 0.95 three quarters. The wide one has a variance of 9: 50 and some thousands. The peaked
// one has a handful of likely tokens more.
//
//   cmake -DUNPACED_CUDA=ON -DUNPACED_GPU_PROGRAMS=ON ...; device_sampling_bench
//   [team=block|grid|cluster] [shared=KIB] [vocabulary]
//
// team and shared: what a launch may have at most, for the figures of other cards' code.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "step_rig.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

constexpr int kStepsPerGraph = 64;
constexpr int kLaunches = 20;
constexpr std::int32_t kContext = 4096;

struct Chain {
  const char* name;
  std::function<void(RequestSpec&)> change;
};

std::vector<float> gaussian_row(std::int32_t n_vocab, float deviation, bool peaked) {
  std::vector<float> row(static_cast<std::size_t>(n_vocab));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, deviation);
  for (float& x : row) x = normal(random);
  if (peaked) {
    for (std::size_t i = 0; i < row.size(); i += row.size() / 6) row[i] += 18.0F;
  }
  return row;
}

// Microseconds a step.
double time_chain(StepRig& rig, Sampler& sampler, const Chain& chain) {
  RequestSpec spec;
  spec.sampling.seed = 1;
  spec.prompt.resize(2000);
  std::mt19937 random(2);
  for (TokenId& token : spec.prompt) token = static_cast<TokenId>(random() % 1000U);
  chain.change(spec);
  sampler.reset(spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt);
  if (DeviceSampler::refusal(spec, sampler) != HostReason::kNone) {
    std::printf("%-34s is the host's\n", chain.name);
    return 0.0;
  }
  rig.sampler.upload(spec, sampler, rig.stream());
  cuda_check(cudaStreamSynchronize(rig.stream()), "upload");
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamBeginCapture(rig.stream(), cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < kStepsPerGraph; ++i) rig.enqueue_step();
  cuda_check(cudaStreamEndCapture(rig.stream(), &graph), "capture");
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda_check(cudaEventCreate(&begin), "event");
  cuda_check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < kLaunches; ++i) {
    rig.start(1 << 30);
    cuda_check(cudaEventRecord(begin, rig.stream()), "event");
    cuda_check(cudaGraphLaunch(executable, rig.stream()), "launch");
    cuda_check(cudaEventRecord(end, rig.stream()), "event");
    cuda_check(cudaStreamSynchronize(rig.stream()), "run");
    float ms = 0.0F;
    cuda_check(cudaEventElapsedTime(&ms, begin, end), "time");
    times.push_back(ms * 1000.0F / kStepsPerGraph);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<Chain> chains() {
  using enum SamplerKind;
  return {
      {"greedy", [](RequestSpec& r) { r.sampling.temperature = 0.0F; }},
      {"default", [](RequestSpec&) {}},
      {"default, 10 biases",
       [](RequestSpec& r) {
         for (TokenId i = 0; i < 10; ++i) r.logit_bias.push_back({i * 1777, 0.0F});
       }},
      {"default, penalties", [](RequestSpec& r) { r.sampling.repeat_penalty = 1.0001F; }},
      {"default, DRY over 2000 tokens",
       [](RequestSpec& r) {
         r.sampling.dry_multiplier = 0.0001F;
         r.sampling.dry_penalty_last_n = -1;
       }},
      {"default, 5 logprobs", [](RequestSpec& r) { r.n_probs = 5; }},
      {"default, 5 probabilities after",
       [](RequestSpec& r) { r.n_probs = 5, r.post_sampling_probs = true; }},
      {"default, typical-p", [](RequestSpec& r) { r.sampling.typical_p = 0.9F; }},
      {"default, top-k 1000", [](RequestSpec& r) { r.sampling.top_k = 1000; }},
      {"default, top-k 4000", [](RequestSpec& r) { r.sampling.top_k = 4000; }},
      {"default, top-k 0", [](RequestSpec& r) { r.sampling.top_k = 0; }},
      {"top-k 0, top-p 0.95 only",
       [](RequestSpec& r) { r.sampling.top_k = 0, r.sampling.min_p = 0.0F; }},
      {"top-k 0, min-p 0.05 only",
       [](RequestSpec& r) { r.sampling.top_k = 0, r.sampling.top_p = 1.0F; }},
      {"temperature only",
       [](RequestSpec& r) {
         r.sampling.top_k = 0, r.sampling.top_p = 1.0F, r.sampling.min_p = 0.0F;
       }},
      {"top-k 0, xtc",
       [](RequestSpec& r) { r.sampling.top_k = 0, r.sampling.xtc_probability = 1.0F; }},
      {"top-k 0, dynamic temperature",
       [](RequestSpec& r) {
         r.sampling.top_k = 0, r.sampling.top_p = 1.0F, r.sampling.min_p = 0.0F;
         r.sampling.dynatemp_range = 0.5F;
       }},
      {"top-n-sigma 1", [](RequestSpec& r) { r.sampling.top_n_sigma = 1.0F; }},
      {"mirostat 1", [](RequestSpec& r) { r.sampling.mirostat = 1; }},
      {"mirostat 2", [](RequestSpec& r) { r.sampling.mirostat = 2; }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const AskedLimits asked(argc, argv);
  const std::int32_t n_vocab = argc > 1 ? std::atoi(argv[1]) : 128256;
  StepRig rig(n_vocab, kContext, asked.limits);
  std::printf("%s of %d, keys %s\n", name_of(rig.draw.team), rig.draw.n_blocks,
              rig.draw.keys_are_far ? "far" : "near");
  Sampler sampler(n_vocab, kContext);
  std::printf("%-34s %10s %10s %10s   (us a step, vocabulary %d)\n", "chain", "flat", "wide",
              "peaked", n_vocab);
  for (const Chain& chain : chains()) {
    double times[3] = {};
    for (int i = 0; i < 3; ++i) {
      rig.set_row(gaussian_row(n_vocab, i == 0 ? 1.0F : 3.0F, i == 2));
      times[i] = time_chain(rig, sampler, chain);
    }
    std::printf("%-34s %10.2f %10.2f %10.2f\n", chain.name, times[0], times[1], times[2]);
    std::fflush(stdout);
  }
}
