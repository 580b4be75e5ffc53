#include "device/graph/phase_finder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace unpaced {
namespace {

template <class Part>
const Part* get(const StepPart& part) {
  return std::get_if<Part>(&part.detail);
}

class PhaseFinder {
 public:
  PhaseFinder(const std::vector<StepPart>& parts, const PhaseKernels& kernels)
      : parts_(parts), kernels_(kernels), why_(parts.size()) {}

  PossiblePhases find() && {
    for (std::size_t i = 0; i < parts_.size();) {
      next_ = i + 1;
      if (std::optional<StepPhase> found = phase_at(i)) phases_.push_back(*std::move(found));
      i = next_;
    }
    return {std::move(phases_), std::move(why_)};
  }

 private:
  using Found = std::optional<StepPhase>;

  Found phase_at(std::size_t i) {
    for (const auto& find :
         {&PhaseFinder::summed_norm, &PhaseFinder::norm, &PhaseFinder::attention_input,
          &PhaseFinder::attention, &PhaseFinder::expert_choice, &PhaseFinder::feed_forward,
          &PhaseFinder::product}) {
      if (Found found = (this->*find)(i)) return found;
    }
    if (const auto* other = get<OtherPart>(parts_[i])) why_[i] = other->why;
    if (why_[i].empty()) why_[i] = "it stands by itself";
    return {};
  }

  StepPhase make(PhaseKind kind, std::size_t first, std::size_t end,
                 std::vector<PhaseLaunch> launches) {
    next_ = end;
    return {.nodes = {parts_[first].nodes.begin, parts_[end - 1].nodes.end},
            .kind = kind,
            .launches = std::move(launches),
            .why = ""};
  }

  bool refused(std::size_t i, std::string why) {
    if (why.empty()) return false;
    why_[i] = std::move(why);
    return true;
  }

  // The experts' sum and the norm behind it.
  Found summed_norm(std::size_t i) {
    const auto* sum = get<ExpertSumPart>(parts_[i]);
    if (sum == nullptr) return {};
    const auto* part = i + 1 < parts_.size() ? get<NormPart>(parts_[i + 1]) : nullptr;
    if (part == nullptr || part->input != sum->out) {
      why_[i] = "no norm follows the experts' sum";
      return {};
    }
    if (refused(i, kernels_.why_no_norm(*part))) return {};
    return make(
        PhaseKind::kNorm, i, i + 2,
        {NormLaunch{
            .sum = *sum, .before = {}, .part = *part, .writes_out = true, .rounds = false}});
  }

  Found norm(std::size_t i) {
    const auto* part = get<NormPart>(parts_[i]);
    if (part == nullptr || refused(i, kernels_.why_no_norm(*part))) return {};
    const auto* next = i + 1 < parts_.size() ? get<NormPart>(parts_[i + 1]) : nullptr;
    if (next != nullptr && next->input == part->out && kernels_.why_no_norm(*next).empty()) {
      return make(
          PhaseKind::kNorm, i, i + 2,
          {NormLaunch{
              .sum = {}, .before = *part, .part = *next, .writes_out = true, .rounds = false}});
    }
    return make(
        PhaseKind::kNorm, i, i + 1,
        {NormLaunch{.sum = {}, .before = {}, .part = *part, .writes_out = true, .rounds = false}});
  }

  // Those of a type follow one another, else in the graph's order. V often has more bits than Q and
  // K, which have one kernel then.
  static std::vector<ProductPart> by_type(const std::vector<ProductPart>& products) {
    std::vector<ProductPart> sorted;
    for (const ProductPart& product : products) {
      const auto last = std::find_if(sorted.rbegin(), sorted.rend(), [&](const ProductPart& other) {
        return other.weights->type == product.weights->type;
      });
      sorted.insert(last == sorted.rend() ? sorted.end() : last.base(), product);
    }
    return sorted;
  }

  // The products one launch each, or as many together as there is a kernel for.
  std::vector<PhaseLaunch> launches_of(std::span<const ProductPart> products) const {
    if (kernels_.why_no_products(products).empty()) {
      return {ProductLaunch{{products.begin(), products.end()}}};
    }
    std::vector<PhaseLaunch> launches;
    for (std::size_t i = 0; i < products.size();) {
      std::size_t n = products.size() - i;
      while (n > 1 && !kernels_.why_no_products(products.subspan(i, n)).empty()) --n;
      const auto together = products.subspan(i, n);
      launches.emplace_back(ProductLaunch{{together.begin(), together.end()}});
      i += n;
    }
    return launches;
  }

  struct AttentionInput {
    std::vector<ProductPart> products;
    RopeLaunch rope;
    std::set<const ggml_tensor*> made;  // values of these parts
    std::size_t end = 0;
  };

  static bool take(AttentionInput& input, const StepPart& part) {
    if (const auto* product = get<ProductPart>(part)) {
      if (product->experts != nullptr ||
          (!input.products.empty() && product->input != input.products.front().input)) {
        return false;
      }
      input.products.push_back(*product);
      input.made.insert(product->out);
    } else if (const auto* rope = get<RopePart>(part)) {
      if (!input.made.contains(origin(rope->input))) return false;
      input.rope.ropes.push_back(*rope);
      input.made.insert(rope->out);
    } else if (const auto* write = get<CacheWritePart>(part)) {
      if (!input.made.contains(origin(write->input))) return false;
      input.rope.writes.push_back(*write);
    } else {
      return false;
    }
    return true;
  }

  Found attention_input(std::size_t i) {
    if (get<ProductPart>(parts_[i]) == nullptr) return {};
    AttentionInput input;
    for (input.end = i; input.end < parts_.size() && take(input, parts_[input.end]);) ++input.end;
    if (input.rope.ropes.empty() || input.rope.writes.size() != 2) return {};
    for (const ProductPart& product : input.products) {
      if (refused(i, kernels_.why_no_products({&product, 1}))) return {};
    }
    if (refused(i, kernels_.why_no_rope(input.rope))) return {};
    std::vector<PhaseLaunch> launches = launches_of(by_type(input.products));
    launches.emplace_back(std::move(input.rope));
    return make(PhaseKind::kAttentionInput, i, input.end, std::move(launches));
  }

  Found attention(std::size_t i) {
    const auto* part = get<AttentionPart>(parts_[i]);
    if (part == nullptr || refused(i, kernels_.why_no_attention(*part))) return {};
    return make(PhaseKind::kAttention, i, i + 1,
                {AttentionLaunch{.part = *part,
                                 .n_parts = kernels_.attention_parts(*part),
                                 .writes_out = true,
                                 .rounded = nullptr}});
  }

  Found expert_choice(std::size_t i) {
    const auto* part = get<ExpertChoicePart>(parts_[i]);
    if (part == nullptr || refused(i, kernels_.why_no_choice(*part))) return {};
    return make(PhaseKind::kExpertChoice, i, i + 1, {ExpertChoiceLaunch{*part}});
  }

  // The product behind part i that takes its values.
  const ProductPart* product_of(std::size_t i, const ggml_tensor* values) const {
    if (i + 1 >= parts_.size()) return nullptr;
    const auto* part = get<ProductPart>(parts_[i + 1]);
    return part != nullptr && origin(part->input) == values ? part : nullptr;
  }

  Found feed_forward(std::size_t i) {
    if (const auto* gated = get<GatedPart>(parts_[i])) {
      if (refused(i, kernels_.why_no_gated(*gated))) return {};
      const ProductPart* down = product_of(i, gated->out);
      if (down == nullptr || refused(i + 1, kernels_.why_no_products({down, 1}))) {
        return make(PhaseKind::kFeedForward, i, i + 1, {GatedLaunch{*gated}});
      }
      return make(PhaseKind::kFeedForward, i, i + 2, {GatedLaunch{*gated}, ProductLaunch{{*down}}});
    }
    return fused_feed_forward(i);
  }

  // Gate and up as one matrix.
  Found fused_feed_forward(std::size_t i) {
    const auto* both = get<ProductPart>(parts_[i]);
    if (both == nullptr || i + 2 >= parts_.size()) return {};
    const auto* activation = get<ActivationPart>(parts_[i + 1]);
    if (activation == nullptr || origin(activation->input) != both->out) return {};
    const ProductPart* down = product_of(i + 1, activation->out);
    if (down == nullptr || refused(i, kernels_.why_no_products({both, 1})) ||
        refused(i + 1, kernels_.why_no_activation(*activation)) ||
        refused(i + 2, kernels_.why_no_products({down, 1}))) {
      return {};
    }
    return make(
        PhaseKind::kFeedForward, i, i + 3,
        {ProductLaunch{{*both}}, ActivationLaunch{*activation, takes_rounded(down->weights)},
         ProductLaunch{{*down}}});
  }

  Found product(std::size_t i) {
    const auto* part = get<ProductPart>(parts_[i]);
    if (part == nullptr || refused(i, kernels_.why_no_products({part, 1}))) return {};
    return make(PhaseKind::kProduct, i, i + 1, {ProductLaunch{{*part}}});
  }

  const std::vector<StepPart>& parts_;
  const PhaseKernels& kernels_;
  std::vector<StepPhase> phases_;
  std::vector<std::string> why_;
  std::size_t next_ = 0;
};

}  // namespace

PossiblePhases find_phases(const std::vector<StepPart>& parts, const PhaseKernels& kernels) {
  return PhaseFinder(parts, kernels).find();
}

}  // namespace unpaced
