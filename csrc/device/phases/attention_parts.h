// By how many of a grid's blocks ggml divides the cells of an attention: the order of its sums
// hangs on it, and it on the card and on the registers that ggml's kernel was compiled to.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <string>

namespace unpaced {

class AttentionParts {
 public:
  // Of all attentions of the same types, sizes and parameters. n: 0 where ggml has another kernel
  // than the one that ours has the bits of.
  void put(const ggml_tensor* attention, std::int32_t n) { parts_[name(attention)] = n; }
  // -1: nobody has put it.
  [[nodiscard]] std::int32_t of(const ggml_tensor* attention) const {
    const auto found = parts_.find(name(attention));
    return found == parts_.end() ? -1 : found->second;
  }

 private:
  [[nodiscard]] static std::string name(const ggml_tensor* attention);

  std::map<std::string, std::int32_t> parts_;
};

}  // namespace unpaced
