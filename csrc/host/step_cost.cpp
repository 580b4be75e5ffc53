#include "host/step_cost.h"

#include <algorithm>

namespace unpaced {
namespace {

// What a new time weighs. Steps that become longer are believed sooner: who waits for a token
// notices those.
constexpr double kLongerStep = 0.5;
constexpr double kShorterStep = 0.25;
// A time counts as this many times what was expected at most, and as that part of it at least.
constexpr double kStepSurprise = 2.0;
// By so much a step's time varies anyway: what a few tokens add may be lost in it.
constexpr double kDoubt = 1.0 / 8;

void learn(double& known, double seen) noexcept {
  if (known <= 0) {
    known = seen;
    return;
  }
  seen = std::clamp(seen, known / kStepSurprise, known * kStepSurprise);
  known += (seen > known ? kLongerStep : kShorterStep) * (seen - known);
}

// What was added to a step in which nothing but decoding takes `decode`, where so much was seen. A
// time that is within doubt says no more than that it was: who took it for the tokens' own would
// believe of one that it costs nothing, and of a thousand that they cost a thousand times that.
double believed(double known, double seen, double decode) noexcept {
  const double doubt = kDoubt * decode;
  if (seen >= doubt) return seen;
  return known > 0 ? std::clamp(known, seen, doubt) : doubt;
}

}  // namespace

void StepCost::observe(std::int32_t n_decoding, std::int32_t n_prompt, std::int64_t us) noexcept {
  const auto time = static_cast<double>(us);
  if (time <= 0 || n_decoding + n_prompt <= 0) return;
  ++n_seen_;
  if (n_prompt == 0) {
    learn(decode_us_[static_cast<std::size_t>(n_decoding)], time);
  } else if (n_decoding > 0) {
    // The first one says more than chunks that were computed alone, which are larger.
    if (!has_seen_both_) prompt_token_us_ = 0;
    has_seen_both_ = true;
    const double decode = decode_us(n_decoding);
    const double seen = std::max(0.0, time - decode);
    learn(prompt_token_us_, believed(prompt_token_us_ * n_prompt, seen, decode) / n_prompt);
    if (decode > 0) beside_.observe(n_prompt, believed(beside_.most_us(n_prompt), seen, decode));
  } else {
    if (!has_seen_both_) learn(prompt_token_us_, time / n_prompt);
    alone_.observe(n_prompt, time);
  }
}

double StepCost::most_us(std::int32_t n, std::int32_t n_decoding) const noexcept {
  if (n_decoding > 0) return beside_.is_known() ? beside_.most_us(n) : alone_.most_us(n);
  if (alone_.is_known() || !beside_.is_known()) return alone_.most_us(n);
  return decode_us(1) + beside_.most_us(n);
}

double StepCost::least_us(std::int32_t n, std::int32_t n_decoding) const noexcept {
  if (n_decoding > 0 && beside_.is_known()) return beside_.least_us(n);
  return n_decoding > 0 ? 0 : alone_.least_us(n);
}

double StepCost::decode_us(std::int32_t n_decoding) const noexcept {
  const auto is_known = [](double us) { return us > 0; };
  const auto at = decode_us_.begin() + n_decoding + 1;
  const auto below = std::find_if(std::make_reverse_iterator(at), decode_us_.rend(), is_known);
  if (below != decode_us_.rend()) return *below;
  const auto above = std::find_if(at, decode_us_.end(), is_known);
  return above == decode_us_.end() ? 0 : *above;
}

}  // namespace unpaced
