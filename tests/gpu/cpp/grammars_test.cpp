// Grammars in the GPU's loop beside HostStepper's: the same tokens, the same ends, alone and beside
// others, whether masks come before they are wanted, late, or never in time. The grammars are
// functions of the tokens so far, so that each step has a mask of its own.
//
//   grammars_test MODEL.gguf [device|ahead]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grammar/token_mask.h"
#include "stage.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

struct Rules {
  std::int32_t n_halved = 1;     // every 2^n_halved-th token may come, by chance, at each step
  bool is_opposite = false;      // every other one may
  std::int32_t ends_after = -1;  // tokens: then only what ends the text may come
  std::int32_t dead_after = -1;  // likewise: then nothing may
  std::chrono::microseconds takes{0};
  std::int32_t slow_from = 0;  // tokens: before, it takes no time
  std::int32_t fails_after = -1;
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15U;
  return (a ^ a >> 29U) * 0xbf58476d1ce4e5b9U;
}

class RulesMatcher final : public TokenMatcher {
 public:
  RulesMatcher(const Model& model, Rules rules) : model_(model), rules_(rules) {}

  std::int32_t n_vocab() const noexcept override { return model_.n_vocab(); }
  bool allows(TokenId token) override {
    if (is_over(rules_.dead_after)) return false;
    if (model_.is_eog(token)) return is_over(rules_.ends_after);
    if (is_over(rules_.ends_after)) return false;
    return (word(static_cast<std::size_t>(token / 32)) >> token % 32 & 1U) != 0U;
  }
  void fill(std::span<std::uint32_t> words) override {
    if (n_accepted_ >= rules_.slow_from) std::this_thread::sleep_for(rules_.takes);
    const bool is_free = !is_over(rules_.dead_after) && !is_over(rules_.ends_after);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = is_free ? word(i) : 0;
    if (n_vocab() % 32 != 0) words[words.size() - 1] &= (1U << n_vocab() % 32) - 1;
    for (TokenId token = 0; token < n_vocab(); ++token) {
      if (!model_.is_eog(token)) continue;
      std::uint32_t& its = words[static_cast<std::size_t>(token / 32)];
      const std::uint32_t bit = 1U << token % 32;
      its = allows(token) ? its | bit : its & ~bit;
    }
  }
  void accept(TokenId token) override {
    state_ = mix(state_, static_cast<std::uint64_t>(token));
    ++n_accepted_;
  }
  void accept_text(std::string_view) override {}
  void restart() override {
    state_ = 1;
    n_accepted_ = 0;
  }
  std::string failure() const override { return is_over(rules_.fails_after) ? "it failed" : ""; }

 private:
  [[nodiscard]] bool is_over(std::int32_t n) const { return n >= 0 && n_accepted_ >= n; }
  // Of the mask of text that goes on.
  [[nodiscard]] std::uint32_t word(std::size_t i) const {
    std::uint32_t bits = UINT32_MAX;
    for (std::int32_t k = 0; k < rules_.n_halved; ++k) {
      bits &= static_cast<std::uint32_t>(mix(state_ + static_cast<std::uint64_t>(k), i) >> 32U);
    }
    return rules_.is_opposite ? ~bits : bits;
  }

  const Model& model_;
  const Rules rules_;
  std::uint64_t state_ = 1;
  std::int32_t n_accepted_ = 0;
};

class Grammars {
 public:
  Grammars(const Model& model, Counters& counters, const HostStepper& stepper, Stage& host,
           Stage& device)
      : model_(model), counters_(counters), stepper_(stepper), host_(host), device_(device) {}

  void test() {
    for (const Rules& rules : {Rules{.n_halved = 8, .is_opposite = true}, Rules{},
                               Rules{.n_halved = 5}, Rules{.n_halved = 8}}) {
      for (std::size_t chain = 0; chain < 8; ++chain) {
        compare("alone, every " + std::to_string(1 << rules.n_halved) +
                    (rules.is_opposite ? "th refused" : "th allowed") + ", chain " +
                    std::to_string(chain),
                1, [&](RequestSpec& spec, std::size_t) {
                  set_chain(spec.sampling, chain);
                  obey(spec, rules);
                });
      }
    }
    expect(counters_.n_masked_tokens.get() > 1000,
           std::to_string(counters_.n_masked_tokens.get()) +
               " tokens by the loop under grammars, masks late for " +
               std::to_string(counters_.n_late_masks.get()));
    test_ends();
    test_late();
    compare("alone, across the ends of windows", 1, [&](RequestSpec& spec, std::size_t) {
      set_chain(spec.sampling, 2);
      obey(spec, {});
      spec.max_tokens = 600;
    });
    compare("alone, with probabilities after the chain", 1, [&](RequestSpec& spec, std::size_t) {
      set_chain(spec.sampling, 0);
      spec.n_probs = 5;
      spec.post_sampling_probs = true;
      obey(spec, {});
    });
    compare("alone, pausing", 1, [&](RequestSpec& spec, std::size_t) {
      set_chain(spec.sampling, 2);
      spec.pause_tokens = std::make_shared<const std::vector<std::uint32_t>>(
          static_cast<std::size_t>(model_.n_vocab()) / 32 + 1, 0x11111111U);
      obey(spec, {});
    });
    test_crowds();
  }

 private:
  using Shape = std::function<void(RequestSpec&, std::size_t)>;

  void obey(RequestSpec& spec, const Rules& rules) const {
    spec.mask = std::make_shared<TokenMask>(std::make_unique<RulesMatcher>(model_, rules));
  }

  // A mask is one sequence's: the requests of each play are made anew.
  [[nodiscard]] std::vector<RequestSpec> requests(std::size_t n, const Shape& shape) const {
    std::vector<RequestSpec> made(n);
    for (std::size_t i = 0; i < n; ++i) {
      RequestSpec& spec = made[i];
      spec.cache_prompt = false;
      spec.max_tokens = 100;
      for (std::size_t k = 0; k < 5 + 3 * i; ++k) {
        spec.prompt.push_back(static_cast<TokenId>((7919 * k + 131 * i + 17) %
                                                   static_cast<std::size_t>(model_.n_vocab())));
      }
      shape(spec, i);
    }
    return made;
  }

  // One whose mask is late sits out the host's steps. Then others share a step than where masks are
  // in time, and ggml's sums hang on how many they are: another turn, until nobody sat out.
  std::vector<Answer> by_host(std::size_t n, const Shape& shape) {
    constexpr int kTurns = 10;
    for (int turn = 1;; ++turn) {
      bool sat_out = false;
      const auto look = [&](int) {
        sat_out = sat_out || std::ranges::any_of(host_.slots(), [&](const Slot& slot) {
                    return slot.active() && stepper_.is_held(slot);
                  });
      };
      std::vector<Answer> answers = host_.play(requests(n, shape), n, look);
      if (n == 1 || !sat_out) return answers;
      std::printf("  %zu at once: the host's masks were late\n", n);
      if (turn == kTurns) return answers;
    }
  }

  // Returns the host's answers.
  std::vector<Answer> compare(const std::string& what, std::size_t n, const Shape& shape,
                              bool is_all_drawn = true) {
    const std::vector<Answer> expected = by_host(n, shape);
    const std::uint64_t n_late = counters_.n_late_masks.get();
    const std::vector<Answer> found = device_.play(requests(n, shape), n);
    std::uint64_t n_least = 0;  // all but the first of each
    std::string different;
    for (std::size_t i = 0; i < n; ++i) {
      n_least += expected[i].tokens.empty() ? 0 : expected[i].tokens.size() - 1;
      const std::string where = difference(expected[i], found[i]);
      if (!where.empty()) different += " request " + std::to_string(i) + ": " + where + ";";
      const auto& p = expected[i].pairs;
      const auto& q = found[i].pairs;
      bool same = p.size() == q.size();
      for (std::size_t k = 0; same && k < p.size(); ++k) {
        same = p[k].token == q[k].token && std::abs(p[k].logprob - q[k].logprob) < 1e-4F;
      }
      if (!same) different += " the probabilities of request " + std::to_string(i) + ";";
    }
    if (!different.empty())
      different = "; not" + different + " masks were late " +
                  std::to_string(counters_.n_late_masks.get() - n_late) + " times";
    expect(different.empty(),
           what + ": " + std::to_string(n_least) + " tokens as the host's" + different);
    expect(is_all_drawn ? device_.n_device() == n_least : device_.n_device() > 0,
           what + ": " + std::to_string(device_.n_device()) + " of " + std::to_string(n_least) +
               " on the GPU");
    return expected;
  }

  void test_ends() {
    const auto reason_of = [&](const std::string& what, const Shape& shape, FinishReason wanted) {
      const std::vector<Answer> answers = compare(what, 1, shape);
      expect(answers[0].reason == wanted, what + ": the end is the one that is meant, " +
                                              std::to_string(static_cast<int>(answers[0].reason)));
    };
    for (const std::int32_t after : {1, 2, 7, 50}) {
      const std::string n = std::to_string(after) + " tokens";
      reason_of(
          "an end after " + n,
          [&](RequestSpec& spec, std::size_t) {
            set_chain(spec.sampling, 2);
            obey(spec, {.ends_after = after});
          },
          FinishReason::kEos);
      reason_of(
          "an end that is banned after " + n,
          [&](RequestSpec& spec, std::size_t) {
            for (TokenId token = 0; token < model_.n_vocab(); ++token) {
              if (model_.is_eog(token))
                spec.logit_bias.push_back({.token = token, .bias = -INFINITY});
            }
            obey(spec, {.ends_after = after});
          },
          FinishReason::kGrammarEnd);
      reason_of(
          "a dead end after " + n,
          [&](RequestSpec& spec, std::size_t) {
            set_chain(spec.sampling, 1);
            obey(spec, {.dead_after = after});
          },
          FinishReason::kGrammarDeadEnd);
      reason_of(
          "a failure after " + n,
          [&](RequestSpec& spec, std::size_t) { obey(spec, {.fails_after = after}); },
          FinishReason::kGrammarFailed);
    }
  }

  void test_late() {
    using std::chrono::microseconds;
    for (const int takes : {250, 600, 1500}) {
      for (const std::size_t chain : {2, 3, 4}) {
        const std::uint64_t before = counters_.n_late_masks.get();
        compare("masks that take " + std::to_string(takes) + " us, chain " + std::to_string(chain),
                1, [&](RequestSpec& spec, std::size_t) {
                  set_chain(spec.sampling, chain);
                  obey(spec, {.takes = microseconds(takes), .slow_from = 30});
                });
        const std::uint64_t n_late = counters_.n_late_masks.get() - before;
        std::printf("  %d us: the loop asked %llu times\n", takes,
                    static_cast<unsigned long long>(n_late));
        // Slower than the draw waits, and often: the host is asked, and then for every token.
        if (takes == 1500) expect(n_late > 0, "slow masks are asked for");
      }
    }
  }

  void test_crowds() {
    // Where the machine has no time for a worker its masks are slow, and the crowd is the host's.
    for (const std::size_t n : {2, 4, 8}) {
      compare(
          std::to_string(n) + " at once, every second under a grammar", n,
          [&](RequestSpec& spec, std::size_t i) {
            set_chain(spec.sampling, i);
            if (i % 2 == 1) obey(spec, {.n_halved = i % 4 == 1 ? 1 : 6});
          },
          false);
      compare(
          std::to_string(n) + " at once, all under grammars that end", n,
          [&](RequestSpec& spec, std::size_t i) {
            set_chain(spec.sampling, i + 1);
            obey(spec, {.ends_after = static_cast<std::int32_t>(10 + 11 * i)});
          },
          false);
    }
    // What it gets hangs on when the host comes; what it must not get does not.
    const auto late = requests(4, [&](RequestSpec& spec, std::size_t i) {
      set_chain(spec.sampling, i);
      Rules rules;
      if (i == 1) rules = {.takes = std::chrono::microseconds(3000), .slow_from = 20};
      if (i < 2) obey(spec, rules);
    });
    const std::vector<Answer> found = device_.play(late, 4);
    bool holds = true;
    for (std::size_t i = 0; i < 4; ++i) {
      const bool has_end = i >= 2 && found[i].reason == FinishReason::kEos;
      holds = holds && (has_end || found[i].tokens.size() == 100);
      if (late[i].mask == nullptr) continue;
      RulesMatcher rules(model_, {});
      for (const TokenId token : found[i].tokens) {
        holds = holds && rules.allows(token);
        rules.accept(token);
      }
    }
    expect(holds, "a slow grammar beside others: each has its tokens");
    const std::vector<Answer> ended = device_.play(requests(4,
                                                            [&](RequestSpec& spec, std::size_t i) {
                                                              set_chain(spec.sampling, 0);
                                                              spec.sampling.seed =
                                                                  static_cast<std::uint32_t>(i);
                                                              obey(spec, {});
                                                              spec.max_tokens = 400;
                                                            }),
                                                   4, [&](int n) {
                                                     if (n == 9) device_.cancel(2);
                                                     if (n == 20) device_.cancel(0);
                                                   });
    expect(ended[0].reason == FinishReason::kCancelled &&
               ended[2].reason == FinishReason::kCancelled && ended[1].tokens.size() == 400 &&
               ended[3].tokens.size() == 400,
           "cancels under grammars leave the others whole");
  }

  const Model& model_;
  Counters& counters_;
  const HostStepper& stepper_;
  Stage& host_;
  Stage& device_;
};

void run(const char* path, DecodeLoop loop) {
  Steppers steppers(path, loop);
  Stage on_host(*steppers.model, *steppers.host, steppers.counters);
  Stage on_device(*steppers.model, *steppers.device, steppers.counters);
  Grammars(*steppers.model, steppers.counters, *steppers.host, on_host, on_device).test();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  const bool ahead = argc == 3 && std::strcmp(argv[2], "ahead") == 0;
  try {
    run(argv[1], ahead ? DecodeLoop::kAhead : DecodeLoop::kDevice);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
