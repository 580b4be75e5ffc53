#include "device/lane/pause_tokens.h"

#include <algorithm>

namespace unpaced {

PauseTokens::PauseTokens(const Model& model)
    : on_device_(static_cast<std::size_t>(model.n_vocab()) / 32 + 1),
      staging_(on_device_.size()),
      end_tokens_(on_device_.size()) {
  for (TokenId token = 0; token < model.n_vocab(); ++token) {
    if (model.is_eog(token)) end_tokens_[static_cast<std::size_t>(token / 32)] |= 1U << token % 32;
  }
  copy_up_now(on_device_.data(), end_tokens_.data(), end_tokens_.size() * sizeof(std::uint32_t));
}

void PauseTokens::upload(const RequestSpec& spec, cudaStream_t stream) {
  const std::vector<std::uint32_t>* others = spec.pause_tokens.get();
  if (others == nullptr && !has_others_) return;
  has_others_ = others != nullptr;
  std::copy(end_tokens_.begin(), end_tokens_.end(), staging_.data());
  const std::size_t n = others == nullptr ? 0 : std::min(others->size(), end_tokens_.size());
  for (std::size_t i = 0; i < n; ++i) staging_.data()[i] |= (*others)[i];
  cuda_check(
      cudaMemcpyAsync(on_device_.data(), staging_.data(),
                      end_tokens_.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}

}  // namespace unpaced
