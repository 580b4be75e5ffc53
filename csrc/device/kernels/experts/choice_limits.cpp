// How many experts there can be.
#include "device/kernels/experts/expert_choice.h"

namespace unpaced {

std::string why_no_expert_choice(std::int64_t n_experts, std::int64_t n_chosen) {
  // A thread of ours has one expert, and each of ggml's lanes as many as the others.
  const bool is_power = (n_experts & (n_experts - 1)) == 0;
  if (!is_power || n_experts < 32 || n_experts > 512)
    return "there are too few or too many experts";
  if (n_chosen > 32) return "more experts are chosen than a warp has threads";
  return "";
}

}  // namespace unpaced
