#include "device/lane/device_chain.h"

#include <algorithm>

namespace unpaced {
namespace {

bool is_repetition(SamplerKind kind) noexcept {
  return kind == SamplerKind::kPenalties || kind == SamplerKind::kDry;
}

// Whether only the best token can be drawn: the links before the temperature keep it, and a
// temperature of 0 drops the others.
bool is_greedy(const SamplingParams& params, std::span<const SamplerKind> links) noexcept {
  if (params.temperature > 0.0F || params.dynatemp_range > 0.0F) return false;
  // XTC draws a number of its own stream even then.
  if (std::ranges::find(links, SamplerKind::kXtc) != links.end()) return false;
  for (const SamplerKind kind : links) {
    if (kind == SamplerKind::kTemperature) return true;
    if (is_repetition(kind) || kind == SamplerKind::kTypicalP) return false;
  }
  return false;
}

// The links after the k best as a NucleusChain, if they are one.
NucleusChain nucleus_of(const SamplingParams& params, std::int32_t top_k,
                        std::span<const SamplerKind> links) noexcept {
  const auto takes = [&links](SamplerKind kind) {
    if (links.empty() || links.front() != kind) return false;
    links = links.subspan(1);
    return true;
  };
  NucleusChain chain{};
  chain.has_top_p = takes(SamplerKind::kTopP);
  chain.top_p = params.top_p;
  chain.has_min_p = takes(SamplerKind::kMinP);
  chain.temperature = takes(SamplerKind::kTemperature) ? params.temperature : 1.0F;
  const bool is_long = top_k == 0 ? chain.has_top_p : top_k > kMaxNarrow;
  chain.applies = is_long && links.empty() && !(params.dynatemp_range > 0.0F);
  return chain;
}

}  // namespace

DeviceChain plan_device_chain(const SamplingParams& params, std::span<const SamplerKind> links,
                              std::int32_t n_vocab, bool after) noexcept {
  DeviceChain chain;
  std::size_t n_row_links = 0;
  if (params.mirostat == 0) {
    while (n_row_links < links.size() && is_repetition(links[n_row_links])) ++n_row_links;
  }
  chain.row_links = links.first(n_row_links);
  chain.links = links.subspan(n_row_links);
  if (params.mirostat == 0 && is_greedy(params, chain.links)) {
    chain.top_k = 1;
    chain.links = {};
  } else if (!chain.links.empty() && chain.links.front() == SamplerKind::kTopK) {
    const std::int32_t k = std::min(params.top_k, n_vocab);
    if (k <= kMaxListed) {
      chain.top_k = k;
      chain.links = chain.links.subspan(1);
    }
  }
  const bool late_dry = std::ranges::find(chain.links, SamplerKind::kDry) != chain.links.end();
  chain.is_wide = chain.top_k == 0 || chain.top_k > kMaxNarrow || late_dry || after;
  if (params.mirostat == 0 && !after) {
    chain.nucleus = nucleus_of(params, chain.top_k, chain.links);
  }
  return chain;
}

bool can_run(const SamplingParams& params, std::span<const SamplerKind> links) noexcept {
  if (std::ranges::count(links, SamplerKind::kXtc) > 1) return false;
  const bool top_k_fits = params.top_k > 0 && params.top_k <= kMaxListed;
  const auto typical = std::ranges::find(links, SamplerKind::kTypicalP);
  const auto top_k = std::ranges::find(links, SamplerKind::kTopK);
  return typical == links.end() || (top_k_fits && top_k < typical);
}

}  // namespace unpaced
