#include "device/device_sampler.h"

#include <algorithm>

#include "device/sample_kernels.h"

namespace unpaced {
namespace {

constexpr std::size_t kMaxBiases = 4096;

std::size_t n_text(std::int32_t n_ctx) { return static_cast<std::size_t>(n_ctx) + 1; }

template <class T>
void copy_up(DeviceArray<T>& to, const PinnedArray<T>& from, std::size_t n, cudaStream_t stream) {
  if (n == 0) return;
  cuda_check(cudaMemcpyAsync(to.data(), from.data(), n * sizeof(T), cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
}

// Whether only the best token can be drawn: the links before the temperature keep it, and a
// temperature of 0 drops the others.
bool is_greedy(const SamplingParams& params, std::span<const SamplerKind> links) noexcept {
  if (params.temperature > 0.0F || params.dynatemp_range > 0.0F) return false;
  for (const SamplerKind kind : links) {
    if (kind == SamplerKind::kTemperature) return true;
    if (kind == SamplerKind::kPenalties || kind == SamplerKind::kDry ||
        kind == SamplerKind::kTypicalP || kind == SamplerKind::kXtc) {
      return false;
    }
  }
  return false;
}

// The chain as the device runs it: penalties on the row, the k best, the rest on those.
struct Split {
  bool penalise_row = false;
  std::int32_t top_k = 0;  // 0: the chain does not begin so
  std::span<const SamplerKind> rest;
};

Split split(const SamplingParams& params, std::span<const SamplerKind> links,
            std::int32_t n_vocab) noexcept {
  Split s;
  if (!links.empty() && links.front() == SamplerKind::kPenalties) {
    s.penalise_row = true;
    links = links.subspan(1);
  }
  if (is_greedy(params, links)) {
    s.top_k = 1;
  } else if (!links.empty() && links.front() == SamplerKind::kTopK) {
    s.top_k = std::min(params.top_k, n_vocab);
    s.rest = links.subspan(1);
  }
  return s;
}

}  // namespace

DeviceSampler::DeviceSampler(std::int32_t n_vocab, std::int32_t n_ctx)
    : n_vocab_(n_vocab),
      sampling_(1),
      count_index_(static_cast<std::size_t>(n_vocab)),
      count_entries_(n_text(n_ctx) + 1),
      history_(2 * n_text(n_ctx) + kMaxSteps),
      biases_(kMaxBiases),
      sampling_staging_(1),
      count_staging_(count_entries_.size()),
      history_staging_(n_text(n_ctx)),
      bias_staging_(biases_.size()) {
  // The index may hold anything, but not what would look like an entry by accident of old memory.
  cuda_check(cudaMemset(count_index_.data(), 0xff, count_index_.size() * sizeof(std::int32_t)),
             "cudaMemset");
}

HostReason DeviceSampler::refusal(const RequestSpec& spec, const Sampler& sampler) noexcept {
  const SamplingParams& params = sampler.params();
  const auto links = sampler.links();
  if (spec.n_probs > 0 || spec.want_logprob) return HostReason::kLogprobs;
  if (spec.logit_bias.size() > kMaxBiases) return HostReason::kLogitBias;
  if (params.mirostat != 0) return HostReason::kMirostat;
  if (params.adaptive_p) return HostReason::kAdaptiveP;
  if (sampler.repetition().has_dry()) return HostReason::kDry;
  if (std::count(links.begin(), links.end(), SamplerKind::kXtc) > 1) {
    return HostReason::kChain;
  }
  const Split s = split(params, links, INT32_MAX);
  if (s.top_k < 1) return HostReason::kChain;
  if (s.top_k > kMaxListed) return HostReason::kTopK;
  return HostReason::kNone;
}

void DeviceSampler::upload(const Sampler& sampler, cudaStream_t stream) {
  const Repetition& repetition = sampler.repetition();
  const Split s = split(sampler.params(), sampler.links(), n_vocab_);
  const auto window = repetition.penalty_window();
  const auto biases = sampler.biases();
  const std::size_t n_biases = biases.size();
  std::copy(biases.begin(), biases.end(), bias_staging_.data());
  std::stable_sort(bias_staging_.data(), bias_staging_.data() + n_biases,
                   [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  std::copy(window.begin(), window.end(), history_staging_.data());
  const TokenTable& counts = repetition.counts();
  std::copy_n(counts.entries, counts.size, count_staging_.data());

  DeviceSampling& d = *sampling_staging_.data();
  d = {};
  d.params = sampler.params();
  d.log_min_p = sampler.log_min_p();
  d.n_vocab = n_vocab_;
  d.top_k = s.top_k;
  d.n_links = static_cast<std::int32_t>(s.rest.size());
  std::copy(s.rest.begin(), s.rest.end(), d.links);
  d.penalise_row = s.penalise_row;
  d.penalties = repetition.penalties();
  d.penalty_last_n = repetition.penalty_last_n();
  d.counts = {count_index_.data(), count_entries_.data(), counts.size};
  d.history = history_.data();
  d.history_size = static_cast<std::int32_t>(window.size());
  d.biases = biases_.data();
  d.n_biases = static_cast<std::int32_t>(n_biases);
  d.streams = sampler.streams();

  copy_up(biases_, bias_staging_, n_biases, stream);
  copy_up(history_, history_staging_, window.size(), stream);
  copy_up(count_entries_, count_staging_, static_cast<std::size_t>(counts.size), stream);
  copy_up(sampling_, sampling_staging_, 1, stream);
  launch_index_counts(sampling_.data(), counts.size, stream);
}

void DeviceSampler::download(Sampler& sampler, cudaStream_t stream) {
  cuda_check(cudaMemcpyAsync(sampling_staging_.data(), sampling_.data(), sizeof(DeviceSampling),
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  sampler.set_streams(sampling_staging_.data()->streams);
}

}  // namespace unpaced
