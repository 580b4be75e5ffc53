#include "device/lane/device_sampler.h"

#include <algorithm>
#include <atomic>

#include "device/draw/sample_kernels.h"
#include "device/lane/device_chain.h"

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

LogprobKind logprob_kind(const RequestSpec& spec) noexcept {
  if (spec.n_probs <= 0 && !spec.want_logprob) return LogprobKind::kNone;
  return spec.post_sampling_probs ? LogprobKind::kAfter : LogprobKind::kBefore;
}

}  // namespace

DeviceSampler::DeviceSampler(std::int32_t n_vocab, std::int32_t n_ctx)
    : n_vocab_(n_vocab),
      wide_(n_vocab),
      dry_(n_vocab, n_ctx),
      sampling_(1),
      count_index_(static_cast<std::size_t>(n_vocab)),
      count_entries_(n_text(n_ctx) + 1),
      history_(2 * n_text(n_ctx) + kMaxSteps),
      biases_(kMaxBiases),
      sampling_staging_(1),
      count_staging_(count_entries_.size()),
      history_staging_(n_text(n_ctx)),
      bias_staging_(biases_.size()),
      logprobs_(kMaxSteps) {
  // The index may hold anything, but not what would look like an entry by accident of old memory.
  fill_now(count_index_.data(), 0xff, count_index_.size() * sizeof(std::int32_t));
}

HostReason DeviceSampler::refusal(const RequestSpec& spec, const Sampler& sampler) noexcept {
  const LogprobKind kind = logprob_kind(spec);
  if (spec.n_probs > kMaxLogprobs) return HostReason::kLogprobs;
  // The device masks the model's row itself, of which they would have to be.
  if (spec.mask != nullptr && kind == LogprobKind::kBefore) return HostReason::kLogprobs;
  if (spec.logit_bias.size() > kMaxBiases) return HostReason::kLogitBias;
  if (sampler.params().adaptive_p) return HostReason::kAdaptiveP;
  if (sampler.repetition().has_dry() && !DryMemory::fits(spec.dry_breakers)) {
    return HostReason::kDry;
  }
  if (spec.infill != nullptr) return HostReason::kInfill;
  const bool runs = can_run(sampler.params(), sampler.links());
  return runs ? HostReason::kNone : HostReason::kChain;
}

void DeviceSampler::upload(const RequestSpec& spec, const Sampler& sampler, cudaStream_t stream) {
  const Repetition& repetition = sampler.repetition();
  const LogprobKind kind = logprob_kind(spec);
  const DeviceChain chain =
      plan_device_chain(sampler.params(), sampler.links(), n_vocab_, kind == LogprobKind::kAfter);
  const auto window = repetition.window();
  const auto biases = sampler.biases();
  const std::size_t n_biases = biases.size();
  std::copy(biases.begin(), biases.end(), bias_staging_.data());
  std::stable_sort(bias_staging_.data(), bias_staging_.data() + n_biases,
                   [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  std::copy(window.begin(), window.end(), history_staging_.data());
  const TokenTable& counts = repetition.counts();
  std::copy_n(counts.entries, counts.size, count_staging_.data());

  DeviceSamplerState& d = *sampling_staging_.data();
  d = {};
  d.params = sampler.params();
  d.log_min_p = sampler.log_min_p();
  d.n_vocab = n_vocab_;
  d.n_row_links = static_cast<std::int32_t>(chain.row_links.size());
  std::copy(chain.row_links.begin(), chain.row_links.end(), d.row_links);
  d.top_k = chain.top_k;
  d.n_links = static_cast<std::int32_t>(chain.links.size());
  std::copy(chain.links.begin(), chain.links.end(), d.links);
  d.nucleus = chain.nucleus;
  d.is_wide = chain.is_wide;
  d.needs_cluster = chain.top_k == 0 || kind == LogprobKind::kBefore;
  d.penalties = repetition.penalties();
  d.penalty_last_n = repetition.penalty_last_n();
  d.counts = {count_index_.data(), count_entries_.data(), counts.size};
  d.dry = dry_.upload(repetition, spec.dry_breakers, stream);
  d.history = history_.data();
  d.history_size = static_cast<std::int32_t>(window.size());
  d.biases = biases_.data();
  d.n_biases = static_cast<std::int32_t>(n_biases);
  d.streams = sampler.streams();
  d.logprobs = {kind, std::max(spec.n_probs, 0), logprobs_.device()};
  d.scratch = wide_.scratch();

  copy_up(biases_, bias_staging_, n_biases, stream);
  copy_up(history_, history_staging_, window.size(), stream);
  copy_up(count_entries_, count_staging_, static_cast<std::size_t>(counts.size), stream);
  copy_up(sampling_, sampling_staging_, 1, stream);
  launch_index_counts(sampling_.data(), counts.size, stream);
}

void DeviceSampler::download(Sampler& sampler, cudaStream_t stream) {
  cuda_check(cudaMemcpyAsync(sampling_staging_.data(), sampling_.data(), sizeof(DeviceSamplerState),
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  sampler.set_streams(sampling_staging_.data()->streams);
}

float DeviceSampler::publish_logprobs(std::int32_t step, Slot& slot,
                                      EventPublisher& events) const noexcept {
  if (logprob_kind(*slot.spec) == LogprobKind::kNone) return 0.0F;
  // acquire: pairs with the system fence before the device's store of the mailbox entry.
  std::atomic_thread_fence(std::memory_order_acquire);
  const StepLogprobs& found = logprobs(step);
  events.logprobs(slot, found.pair, found.n_pairs);
  return found.drawn;
}

}  // namespace unpaced
