#include "device/device_chain.h"

#include <algorithm>

#include "device/loop_state.h"

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
