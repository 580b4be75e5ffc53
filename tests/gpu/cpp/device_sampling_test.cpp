// Draws the same tokens by the device's kernels and by the host's sampling core, from the same rows
// of logits, for random chains over vocabularies of several sizes.
//
//   device_sampling_test [team=block|grid|cluster] [shared=KIB]
//                        [chains of each kind] [seed] [vocabulary] [the only kind]
//
// team and shared: what the card's launch may have at most, so that one card shows what another one
// runs. A team that this card's code has not, or a vocabulary that does not fit, ends with
// status 3.
//
// Kinds: -3 top-p with min-p and a temperature at most, -2 mirostat, -1 mixed, 0 .. 8 one link
// alone.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "nucleus_cases.h"
#include "random_chain.h"
#include "sampling/logprobs.h"
#include "step_rig.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

constexpr std::int32_t kContext = 1024;
constexpr std::int32_t kSteps = 6;
constexpr std::int32_t kMaxReports = 12;
constexpr std::int32_t kNucleus = -3;      // the kind of chain that nucleus_cases.h makes
constexpr std::int32_t kManyTokens = 700;  // enough for each of its ways

constexpr int kCannot = 3;  // the exit status

struct Tally {
  std::int32_t n_chains = 0;
  std::int32_t n_refused = 0;
  std::int32_t n_tokens = 0;
  std::int32_t n_different = 0;
  NucleusTally nucleus{};
};

bool close(float a, float b) {
  return a == b || std::fabs(a - b) <= 1e-6F * std::fmax(1.0F, std::fabs(a));
}

// What is wrong with a step's probabilities; empty: nothing.
std::string compare_logprobs(const StepLogprobs& found, const RequestSpec& spec, Sampler& sampler,
                             TopLogprobs& top, const std::vector<float>& row, TokenId token) {
  std::vector<TokenLogprob> expected;
  float drawn = 0.0F;
  if (spec.post_sampling_probs) {
    for (const Candidate& c : sampler.candidates()) {
      if (c.token == token) drawn = c.p;
      if (static_cast<std::int32_t>(expected.size()) < spec.n_probs && c.p > 0.0F) {
        expected.push_back({c.token, c.p});
      }
    }
  } else {
    const auto best = top.compute(row.data(), spec.n_probs);
    expected.assign(best.begin(), best.end());
    drawn = top.logprob(token);
  }
  const bool exact = spec.post_sampling_probs;
  const auto same = [exact](float a, float b) { return exact ? a == b : close(a, b); };
  if (!same(found.drawn, drawn)) return "probability of the token";
  if (found.n_pairs != static_cast<std::int32_t>(expected.size())) return "number of alternatives";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found.pair[i].token != expected[i].token) return "token of an alternative";
    if (!same(found.pair[i].logprob, expected[i].logprob)) return "probability of an alternative";
  }
  return "";
}

// Adds what the device has counted since the upload.
void count_nucleus(const StepRig& rig, NucleusTally& sum) {
  NucleusTally found{};
  cuda_check(cudaMemcpy(&found, &rig.sampler.device()->nucleus_tally, sizeof found,
                        cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  sum.by_min_p += found.by_min_p;
  sum.by_top_p += found.by_top_p;
  sum.among_best += found.among_best;
  sum.in_order += found.in_order;
}

void compare(StepRig& rig, Sampler& sampler, TopLogprobs& top, Random& random, RequestSpec& spec,
             std::int32_t n_vocab, std::int32_t only, Tally& tally) {
  sampler.reset(spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt);
  ++tally.n_chains;
  if (DeviceSampler::refusal(spec, sampler) != HostReason::kNone) {
    ++tally.n_refused;
    return;
  }
  rig.sampler.upload(spec, sampler, rig.stream());
  rig.start(kMaxSteps);
  for (std::int32_t i = 0; i < kSteps; ++i) {
    const double u = sampler.streams().rng.next_f64();  // of a copy
    const std::vector<float> row =
        only == kNucleus ? nucleus_row(random, n_vocab, spec, u) : random_row(random, n_vocab);
    const SampleResult expected = sampler.sample(row.data());
    rig.set_row(row);
    rig.enqueue_step();
    const TokenId found = rig.token(i);
    ++tally.n_tokens;
    std::string fault;
    if (found != expected.token) {
      fault = "token " + std::to_string(found) + ", not " + std::to_string(expected.token);
    } else if (found >= 0 && (spec.n_probs > 0 || spec.want_logprob)) {
      fault = compare_logprobs(rig.sampler.logprobs(i), spec, sampler, top, row, found);
    }
    if (!fault.empty()) {
      if (tally.n_different++ < kMaxReports) {
        std::printf("vocabulary %d, step %d: %s | %s\n", n_vocab, i, fault.c_str(),
                    describe(spec).c_str());
      }
      return;
    }
    if (found < 0) return;  // the request has ended
    sampler.accept(found);
  }
  count_nucleus(rig, tally.nucleus);
  // The streams have moved as the host's did: the next token by the host is the device's.
  Sampler before(n_vocab, kContext);
  before.reset(spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt);
  rig.sampler.download(before, rig.stream());
  SamplerStreams ours = before.streams();
  SamplerStreams theirs = sampler.streams();
  if (ours.rng.next_u32() != theirs.rng.next_u32() ||
      (spec.sampling.xtc_probability > 0.0F && ours.xtc.next_u32() != theirs.xtc.next_u32()) ||
      ours.mirostat.mu != theirs.mirostat.mu) {
    if (tally.n_different++ < kMaxReports) {
      std::printf("vocabulary %d: streams differ | %s\n", n_vocab, describe(spec).c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const AskedLimits asked(argc, argv);
  const std::int32_t n_chains = argc > 1 ? std::atoi(argv[1]) : 20;
  const auto seed = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 1);
  std::vector<std::int32_t> sizes{1, 2, 33, 700, 5000, 32000, 128256};
  if (argc > 3) sizes = {std::atoi(argv[3])};
  std::int32_t n_different = 0;
  for (const std::int32_t n_vocab : sizes) {
    std::optional<StepRig> made;
    try {
      made.emplace(n_vocab, kContext, asked.limits);
    } catch (const std::runtime_error& e) {
      std::printf("vocabulary %6d: %s\n", n_vocab, e.what());
      return kCannot;
    }
    StepRig& rig = *made;
    const CardCode code = step_kernel_code();
    std::printf("vocabulary %6d: card %s, code from %s for %s, %s of %d, keys %s\n", n_vocab,
                capability_text(code.card).c_str(), capability_text(code.ptx).c_str(),
                capability_text(code.binary).c_str(), name_of(rig.draw.team), rig.draw.n_blocks,
                rig.draw.keys_are_far ? "far" : "near");
    if (asked.has_team && rig.draw.team != asked.limits.team) return kCannot;
    Sampler sampler(n_vocab, kContext);
    TopLogprobs top(n_vocab);
    Random random(seed);
    Tally all;
    const std::int32_t first = argc > 4 ? std::atoi(argv[4]) : kNucleus;
    const std::int32_t last = argc > 4 ? first : 8;
    for (std::int32_t only = first; only <= last; ++only) {
      Tally tally;
      const std::int32_t n = only == -1 || only == kNucleus ? 6 * n_chains : n_chains;
      for (std::int32_t i = 0; i < n; ++i) {
        RequestSpec spec = only == kNucleus ? nucleus_request(random, n_vocab)
                                            : random_request(random, n_vocab, only);
        compare(rig, sampler, top, random, spec, n_vocab, only, tally);
      }
      const char* name = only == kNucleus ? "nucleus"
                         : only == -2     ? "mirostat"
                         : only == -1     ? "mixed"
                                          : name_of(static_cast<SamplerKind>(only));
      if (tally.n_different > 0) {
        std::printf("vocabulary %6d  %-12s %d of %d chains differ\n", n_vocab, name,
                    tally.n_different, tally.n_chains);
      }
      all.n_chains += tally.n_chains;
      all.n_refused += tally.n_refused;
      all.n_tokens += tally.n_tokens;
      all.n_different += tally.n_different;
      if (only == kNucleus) all.nucleus = tally.nucleus;
    }
    std::printf("vocabulary %6d: %d chains (%d refused), %d tokens, %d differ\n", n_vocab,
                all.n_chains, all.n_refused, all.n_tokens, all.n_different);
    const NucleusTally& n = all.nucleus;
    std::printf(
        "vocabulary %6d: nuclei cut surely by min-p %d, by top-p %d, among the best %d, in order "
        "%d\n",
        n_vocab, n.by_min_p, n.by_top_p, n.among_best, n.in_order);
    std::fflush(stdout);
    n_different += all.n_different;
    if (n_vocab < kManyTokens || n_chains < 10 || first != kNucleus) continue;
    if (n.by_min_p == 0 || n.by_top_p == 0 || n.among_best == 0 || n.in_order == 0) {
      std::printf("vocabulary %6d: a way was not taken\n", n_vocab);
      ++n_different;
    }
  }
  return n_different == 0 ? 0 : 1;
}
