// Draws under masks by the device's kernels and by the host's sampling core, from the same rows of
// logits: first as if there were no mask, then, where it refuses the token, under it. Of several
// rows side by side, some without a mask; masks are there before the draw, come while it waits, or
// do not come.
//
//   masked_draw_test [rounds] [seed] [vocabulary] [rows]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "masked_rig.h"
#include "random_chain.h"
#include "sampling/sampler.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

constexpr std::int32_t kContext = 1024;
constexpr std::int32_t kSteps = 8;
constexpr std::int32_t kMaxReports = 12;

enum class Mask { kNone, kBefore, kWhileItWaits, kNever };

struct Expected {
  TokenId token = -1;
  LoopExit exit = LoopExit::kNone;
};

struct Tally {
  std::int32_t n_tokens = 0;
  std::int32_t n_second = 0;
  std::int32_t n_asked = 0;
  std::int32_t n_barred = 0;
  std::int32_t n_different = 0;
};

std::vector<std::uint32_t> random_mask(Random& random, std::int32_t n_vocab) {
  std::vector<std::uint32_t> mask((static_cast<std::size_t>(n_vocab) + 31) / 32);
  if (chance(random, 0.03)) return mask;  // it allows nothing
  const double density = pick(random, {0.0, 0.01, 0.3, 0.9, 1.0});
  const TokenId one = below(random, n_vocab);
  for (TokenId token = 0; token < n_vocab; ++token) {
    const bool may_come = token == one || chance(random, density);
    if (may_come) mask[static_cast<std::size_t>(token / 32)] |= 1U << token % 32;
  }
  return mask;
}

bool has_bit(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token / 32)] >> token % 32 & 1U) != 0U;
}

// What the host's sampling core makes of the row.
Expected draw_on_host(Sampler& sampler, const float* row, Mask kind,
                      const std::vector<std::uint32_t>& mask, Tally& tally) {
  const SampleResult first = sampler.sample(row);
  if (first.status != SampleStatus::kOk) return {-1, LoopExit::kNonFinite};
  if (kind == Mask::kNever) {
    ++tally.n_asked;
    return {first.token, LoopExit::kAsk};
  }
  if (kind == Mask::kNone || has_bit(mask, first.token)) return {first.token, LoopExit::kNone};
  ++tally.n_second;
  const SampleResult second = sampler.sample(row, mask);
  if (second.status == SampleStatus::kOk && has_bit(mask, second.token)) {
    return {second.token, LoopExit::kNone};
  }
  ++tally.n_barred;
  return {-1, LoopExit::kBarred};
}

struct Rows {
  Rows(std::int32_t n, std::int32_t n_vocab) : specs(static_cast<std::size_t>(n)) {
    for (std::int32_t i = 0; i < n; ++i) samplers.emplace_back(n_vocab, kContext);
  }

  std::vector<RequestSpec> specs;
  std::deque<Sampler> samplers;
  std::vector<Mask> kinds;
};

RequestSpec request(Random& random, std::int32_t n_vocab, Sampler& sampler) {
  for (;;) {
    RequestSpec spec =
        random_request(random, n_vocab, pick(random, {-2, -1, -1, -1, 0, 1, 3, 5, 7}));
    spec.n_probs = 0;
    spec.want_logprob = spec.post_sampling_probs = false;
    sampler.reset(spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt);
    if (DeviceSampler::refusal(spec, sampler) == HostReason::kNone) return spec;
  }
}

// Random requests for all rows, and the steps until one of them ends.
void compare(MaskedRig& rig, Rows& rows, Random& random, std::int32_t n_vocab, Tally& tally) {
  const std::size_t n = rows.specs.size();
  const auto first_step = static_cast<std::uint32_t>(below(random, 1000));
  rows.kinds.clear();
  std::vector<bool> has_grammar;
  for (std::size_t i = 0; i < n; ++i) {
    rows.specs[i] = request(random, n_vocab, rows.samplers[i]);
    // The samplers borrow what is in the spec: again, from where it lies now.
    const RequestSpec& spec = rows.specs[i];
    rows.samplers[i].reset(spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt);
    rig.rows[i].sampler.upload(spec, rows.samplers[i], rig.stream());
    rig.rows[i].board.clear();
    rows.kinds.push_back(
        pick(random, {Mask::kNone, Mask::kBefore, Mask::kBefore, Mask::kWhileItWaits}));
    has_grammar.push_back(rows.kinds.back() != Mask::kNone);
  }
  rig.start(has_grammar, first_step);
  bool has_ended = false;
  for (std::int32_t step = 0; step < kSteps && !has_ended; ++step) {
    std::vector<float> logits;
    std::vector<std::vector<std::uint32_t>> masks;
    std::vector<Expected> expected;
    for (std::size_t i = 0; i < n; ++i) {
      const std::vector<float> row = random_row(random, n_vocab);
      masks.push_back(random_mask(random, n_vocab));
      if (has_grammar[i] && chance(random, 0.03)) {
        rows.kinds[i] = Mask::kNever;
        has_ended = true;  // the host's answer is not this program's
      }
      expected.push_back(
          draw_on_host(rows.samplers[i], row.data(), rows.kinds[i], masks.back(), tally));
      logits.insert(logits.end(), row.begin(), row.end());
    }
    const std::uint32_t mask_step = first_step + static_cast<std::uint32_t>(step);
    const auto write = [&](Mask kind) {
      for (std::size_t i = 0; i < n; ++i) {
        if (rows.kinds[i] == kind) rig.rows[i].board.write(masks[i], mask_step);
      }
    };
    write(Mask::kBefore);
    rig.enqueue_step(logits);
    std::this_thread::sleep_for(std::chrono::microseconds(below(random, 60)));
    write(Mask::kWhileItWaits);
    rig.wait();
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t entry = rig.entry(i, step);
      LoopExit exit = entry_exit(entry);
      // This thread may be slower than the GPU waits.
      const bool may_ask = rows.kinds[i] == Mask::kWhileItWaits && exit == LoopExit::kAsk;
      // All leave together.
      if (exit == LoopExit::kStopped) exit = LoopExit::kNone;
      const bool has_token = exit != LoopExit::kNonFinite && exit != LoopExit::kBarred;
      const TokenId token = has_token ? entry_token(entry) : -1;
      ++tally.n_tokens;
      if (may_ask) {
        has_ended = true;
        continue;
      }
      if (exit != expected[i].exit || token != expected[i].token) {
        if (tally.n_different++ < kMaxReports) {
          std::printf(
              "vocabulary %d, row %zu of %zu, step %d: token %d, exit %d, not %d, %d | %s\n",
              n_vocab, i, n, step, token, static_cast<int>(exit), expected[i].token,
              static_cast<int>(expected[i].exit), describe(rows.specs[i]).c_str());
        }
        return;
      }
      if (token < 0) {
        has_ended = true;
      } else {
        rows.samplers[i].accept(token);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int32_t n_rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  const auto seed = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 1);
  std::vector<std::int32_t> sizes{4, 36, 700, 32000, 128256};
  if (argc > 3) sizes = {std::atoi(argv[3])};
  std::vector<std::int32_t> counts{1, 2, 8};
  if (argc > 4) counts = {std::atoi(argv[4])};
  std::int32_t n_different = 0;
  for (const std::int32_t n_vocab : sizes) {
    for (const std::int32_t n_rows : counts) {
      MaskedRig rig(n_vocab, kContext, n_rows);
      Rows rows(n_rows, n_vocab);
      Random random(seed);
      Tally tally;
      for (std::int32_t i = 0; i < n_rounds; ++i) compare(rig, rows, random, n_vocab, tally);
      std::printf(
          "vocabulary %6d, %d rows: %d tokens, %d drawn again, %d asked, %d barred, %d differ\n",
          n_vocab, n_rows, tally.n_tokens, tally.n_second, tally.n_asked, tally.n_barred,
          tally.n_different);
      std::fflush(stdout);
      n_different += tally.n_different;
      if (n_rounds >= 40 && (tally.n_second == 0 || tally.n_asked == 0 || tally.n_barred == 0)) {
        std::printf("a way was not taken\n");
        ++n_different;
      }
    }
  }
  return n_different == 0 ? 0 : 1;
}
