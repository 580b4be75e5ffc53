// Requests as Python fills them in: sampling, stop strings, limits, budgets.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/compiled_stops.h"
#include "bindings/python.h"
#include "engine/engine.h"

namespace unpaced {
namespace {

// Stop strings beyond this are looked for on the host only: listing their tokens takes 0.1 s.
constexpr std::size_t kMaxListedStopWords = 64;

void set_chain(SamplingParams& params, const std::vector<int>& chain) {
  if (chain.size() > static_cast<std::size_t>(kMaxChainLength)) {
    throw nb::value_error("samplers: too many");
  }
  params.n_chain = static_cast<std::int32_t>(chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] < 0 || chain[i] > static_cast<int>(SamplerKind::kInfill)) {
      throw nb::value_error("samplers: unknown kind");
    }
    params.chain[i] = static_cast<SamplerKind>(chain[i]);
  }
}

}  // namespace

PyStopStrings compile_stops(std::shared_ptr<const StopStrings> stops, bool for_device) {
  PyStopStrings made{.stops = std::move(stops), .completing_tokens = nullptr};
  if (for_device && made.stops->n_words() <= kMaxListedStopWords) {
    made.completing_tokens =
        std::make_shared<const std::vector<std::uint32_t>>(made.stops->completing_tokens());
  }
  return made;
}

void bind_request(nb::module_& m) {
  nb::class_<SamplingParams>(m, "SamplingParams")
      .def(nb::init<>())
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("dynatemp_range", &SamplingParams::dynatemp_range)
      .def_rw("dynatemp_exponent", &SamplingParams::dynatemp_exponent)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("typical_p", &SamplingParams::typical_p)
      .def_rw("top_n_sigma", &SamplingParams::top_n_sigma)
      .def_rw("xtc_probability", &SamplingParams::xtc_probability)
      .def_rw("xtc_threshold", &SamplingParams::xtc_threshold)
      .def_rw("repeat_last_n", &SamplingParams::repeat_last_n)
      .def_rw("repeat_penalty", &SamplingParams::repeat_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("dry_multiplier", &SamplingParams::dry_multiplier)
      .def_rw("dry_base", &SamplingParams::dry_base)
      .def_rw("dry_allowed_length", &SamplingParams::dry_allowed_length)
      .def_rw("dry_penalty_last_n", &SamplingParams::dry_penalty_last_n)
      .def_rw("mirostat", &SamplingParams::mirostat)
      .def_rw("mirostat_tau", &SamplingParams::mirostat_tau)
      .def_rw("mirostat_eta", &SamplingParams::mirostat_eta)
      .def_rw("adaptive_p", &SamplingParams::adaptive_p)
      .def_rw("adaptive_target", &SamplingParams::adaptive_target)
      .def_rw("adaptive_decay", &SamplingParams::adaptive_decay)
      .def_rw("min_keep", &SamplingParams::min_keep)
      .def("set_chain", &set_chain, "chain"_a);

  nb::class_<DryBreakers>(m, "DryBreakers").def(nb::init<>());

  nb::class_<InfillVocabulary>(m, "InfillVocabulary");

  nb::class_<PyStopStrings>(m, "StopStrings")
      .def(
          "__init__",
          [](PyStopStrings* self, const nb::list& pieces, const nb::list& stops) {
            auto made = std::make_shared<const TokenPieces>(to_strings(pieces));
            new (self) PyStopStrings(
                compile_stops(std::make_shared<const StopStrings>(
                                  TokenText{.pieces = made, .special = made, .spelled_out = {}},
                                  to_strings(stops)),
                              true));
          },
          "pieces"_a, "stops"_a,
          nb::sig("def __init__(self, pieces: list[bytes], stops: list[bytes]) -> None"))
      .def(
          "first_match",
          [](const PyStopStrings& self, const std::vector<TokenId>& tokens) {
            StopMatcher matcher(self.stops);
            for (std::size_t i = 0; i < tokens.size(); ++i) {
              if (matcher.accept(tokens[i]) > 0) return static_cast<int>(i);
            }
            return -1;
          },
          "tokens"_a)
      .def(
          "completes",
          [](const PyStopStrings& self, TokenId token) {
            if (self.completing_tokens == nullptr) {
              throw nb::value_error("no tokens were listed for these stop strings");
            }
            return (self.completing_tokens->at(static_cast<std::size_t>(token / 32)) >> token % 32 &
                    1U) != 0U;
          },
          "token"_a);

  nb::class_<TextLimits>(m, "TextLimits")
      .def(
          "__init__",
          [](TextLimits* self, const nb::list& pieces, std::int32_t n_indent,
             std::int64_t t_max_ms) {
            auto made = std::make_shared<const TokenPieces>(to_strings(pieces));
            new (self) TextLimits(TokenText{.pieces = made, .special = made, .spelled_out = {}},
                                  n_indent, t_max_ms);
          },
          "pieces"_a, "n_indent"_a, "t_max_ms"_a,
          nb::sig("def __init__(self, pieces: list[bytes], n_indent: int, t_max_ms: int) -> None"))
      .def(
          "first_end",
          [](TextLimits limits, const PyStopStrings& stops, const std::vector<TokenId>& tokens,
             const std::vector<std::int64_t>& times_us) {
            StopMatcher matcher(stops.stops);
            for (std::size_t i = 0; i < tokens.size(); ++i) {
              const std::size_t n_stop_bytes = matcher.accept(tokens[i]);
              const FinishReason reason =
                  limits.accept(tokens[i], {.n_stop_bytes = n_stop_bytes,
                                            .may_become_stop = matcher.may_become_stop(),
                                            .is_end = false,
                                            .now_us = times_us.at(i)});
              if (reason != FinishReason::kNone || n_stop_bytes > 0) {
                return std::tuple(static_cast<int>(i), static_cast<int>(reason), limits.cut_line());
              }
            }
            return std::tuple(-1, 0, -1);
          },
          "stops"_a, "tokens"_a, "times_us"_a);

  nb::class_<ReasoningBudget>(m, "ReasoningBudget")
      .def("end_reasoning", &ReasoningBudget::end_reasoning);

  nb::class_<RequestSpec>(m, "RequestSpec")
      .def(nb::init<>())
      .def_rw("id", &RequestSpec::id)
      .def_rw("prompt", &RequestSpec::prompt)
      .def_rw("sampling", &RequestSpec::sampling)
      .def_rw("dry_breakers", &RequestSpec::dry_breakers)
      .def_rw("limits", &RequestSpec::limits)
      .def(
          "set_infill",
          [](RequestSpec& self, std::shared_ptr<InfillVocabulary> vocabulary) {
            self.infill = std::make_shared<Infill>(std::move(vocabulary));
          },
          "vocabulary"_a)
      .def_rw("max_tokens", &RequestSpec::max_tokens)
      .def_rw("n_probs", &RequestSpec::n_probs)
      .def_rw("want_logprob", &RequestSpec::want_logprob)
      .def_rw("post_sampling_probs", &RequestSpec::post_sampling_probs)
      .def_rw("prompt_logprobs", &RequestSpec::prompt_logprobs)
      .def_rw("lora_scales", &RequestSpec::lora_scales)
      .def_rw("cache_domain", &RequestSpec::cache_domain)
      .def_rw("cache_prompt", &RequestSpec::cache_prompt)
      .def_rw("id_slot", &RequestSpec::id_slot)
      .def_rw("n_cache_reuse", &RequestSpec::n_cache_reuse)
      .def_rw("n_keep", &RequestSpec::n_keep)
      .def_rw("n_discard", &RequestSpec::n_discard)
      .def_rw("mask", &RequestSpec::mask, nb::arg("mask").none())
      .def_rw("reasoning_budget", &RequestSpec::reasoning_budget,
              nb::arg("reasoning_budget").none())
      .def(
          "set_stop",
          [](RequestSpec& self, const PyStopStrings& stops) {
            self.stop = StopMatcher(stops.stops);
            self.pause_tokens = stops.completing_tokens;
          },
          "stops"_a)
      .def(
          "add_pause_tokens",
          [](RequestSpec& self, const CompiledTriggers& triggers) {
            if (triggers.completing_tokens() == nullptr) return;
            // Without a list of its own a stop string is looked for on the host anyway.
            auto all = std::make_shared<std::vector<std::uint32_t>>(*triggers.completing_tokens());
            if (self.pause_tokens != nullptr) {
              const std::size_t n = std::min(all->size(), self.pause_tokens->size());
              for (std::size_t i = 0; i < n; ++i) (*all)[i] |= (*self.pause_tokens)[i];
            } else if (!self.stop.empty()) {
              return;
            }
            self.pause_tokens = std::move(all);
          },
          "triggers"_a)
      .def(
          "add_logit_bias",
          [](RequestSpec& self, TokenId token, float bias) {
            self.logit_bias.push_back({.token = token, .bias = bias});
          },
          "token"_a, "bias"_a);
}

}  // namespace unpaced
