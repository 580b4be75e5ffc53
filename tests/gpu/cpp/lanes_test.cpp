// Crowds on the GPU's loop beside HostStepper: the same tokens, the same ends, for 2 to LANES
// requests that begin together and end one after the other. It prints what a step takes on either.
//
//   lanes_test MODEL.gguf [device|ahead] [LANES] [streams]
//
// streams: each slot has a KV stream of its own. Then a graph has the rows of 2, 4, 8, ... streams,
// and crowds of as many are compared: of others the host's loop computes fewer rows.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "stage.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

using Clock = std::chrono::steady_clock;

class Crowds {
 public:
  Crowds(const Model& model, Stage& host, Stage& device, std::size_t n_lanes)
      : model_(model), host_(host), device_(device), n_lanes_(n_lanes) {}

  void test_streams() {
    for (std::size_t n = 2; n <= n_lanes_; n *= 2) {
      compare(std::to_string(n) + " greedy", requests(n, [](RequestSpec&, std::size_t) {}));
      compare(std::to_string(n) + " seeded chains across the ends of windows",
              requests(n, [](RequestSpec& spec, std::size_t i) {
                set_chain(spec.sampling, i);
                spec.max_tokens = 300;
              }));
    }
    compare("8 that pause", requests(8, [this](RequestSpec& spec, std::size_t i) {
              set_chain(spec.sampling, i);
              if (i % 2 == 0) spec.pause_tokens = pauses(0x00010001U);
            }));
    test_cancels();
    test_newcomers();
    show_times();
  }

  void test() {
    for (std::size_t n = 2; n <= n_lanes_; n = n < 8 ? n + 1 : n + 3) {
      compare(std::to_string(n) + " greedy", requests(n, [](RequestSpec&, std::size_t) {}));
    }
    compare("8 seeded chains that end one after the other",
            requests(8, [](RequestSpec& spec, std::size_t i) {
              set_chain(spec.sampling, i);
              spec.max_tokens = static_cast<std::int32_t>(20 + 13 * (i * 5 % 8));
            }));
    compare("8 that may end by themselves", requests(8, [this](RequestSpec& spec, std::size_t i) {
              spec.sampling = {};
              spec.sampling.seed = static_cast<std::uint32_t>(i);
              spec.logit_bias = {{.token = eog(), .bias = likely_}};
            }));
    compare("4 across the ends of windows", requests(4, [](RequestSpec& spec, std::size_t i) {
              set_chain(spec.sampling, i);
              spec.max_tokens = 250;
            }));
    compare("5 with logprobs, 3 of them", requests(5, [](RequestSpec& spec, std::size_t i) {
              if (i < 3) spec.n_probs = 5;
              spec.post_sampling_probs = i == 1;
              set_chain(spec.sampling, 2);
            }));
    compare("6 that pause", requests(6, [this](RequestSpec& spec, std::size_t i) {
              set_chain(spec.sampling, i);
              if (i % 2 == 0) spec.pause_tokens = pauses(i == 0 ? 0x11111111U : 0x00010001U);
            }));
    compare("a token each",
            requests(4, [](RequestSpec& spec, std::size_t) { spec.max_tokens = 2; }));
    test_cancels();
    // Nothing of them is left: the next crowd is like any other.
    compare("a crowd after cancels", without_ends(6));
    test_newcomers();
    show_times();
  }

 private:
  using Shape = std::function<void(RequestSpec&, std::size_t)>;

  // Of which text would end at once: nearly never, but now and then.
  [[nodiscard]] TokenId eog() const {
    for (TokenId token = 0; token < model_.n_vocab(); ++token) {
      if (model_.is_eog(token)) return token;
    }
    throw std::runtime_error("the vocabulary has no token that ends a text");
  }

  void forbid_ends(RequestSpec& spec) const {
    for (TokenId token = 0; token < model_.n_vocab(); ++token) {
      if (model_.is_eog(token)) spec.logit_bias.push_back({.token = token, .bias = -INFINITY});
    }
  }

  [[nodiscard]] std::vector<RequestSpec> requests(std::size_t n, const Shape& shape) const {
    std::vector<RequestSpec> made(n);
    for (std::size_t i = 0; i < n; ++i) {
      RequestSpec& spec = made[i];
      spec.cache_prompt = false;
      spec.max_tokens = 60;
      spec.sampling.temperature = 0.0F;
      // All of them fit into one batch.
      for (std::size_t k = 0; k < 5 + 3 * (i % 8); ++k) {
        spec.prompt.push_back(static_cast<TokenId>((7919 * k + 131 * i + 17) %
                                                   static_cast<std::size_t>(model_.n_vocab())));
      }
      shape(spec, i);
    }
    return made;
  }

  void compare(const std::string& what, const std::vector<RequestSpec>& asked) {
    const std::vector<Answer> expected = host_.play(asked, asked.size());
    const std::vector<Answer> found = device_.play(asked, asked.size());
    std::uint64_t n_tokens = 0;
    std::uint64_t n_least = 0;  // all but the first of each
    std::string different;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      n_tokens += expected[i].tokens.size();
      n_least += expected[i].tokens.size() - 1;
      const auto [a, b] = std::mismatch(expected[i].tokens.begin(), expected[i].tokens.end(),
                                        found[i].tokens.begin(), found[i].tokens.end());
      if (a != expected[i].tokens.end() || b != found[i].tokens.end()) {
        different += " request " + std::to_string(i) + " from token " +
                     std::to_string(a - expected[i].tokens.begin()) + " on;";
      }
      if (expected[i].reason != found[i].reason) {
        different += " the end of request " + std::to_string(i) + ";";
      }
      const auto& p = expected[i].pairs;
      const auto& q = found[i].pairs;
      bool same = p.size() == q.size();
      for (std::size_t k = 0; same && k < p.size(); ++k) {
        same = p[k].token == q[k].token && std::abs(p[k].logprob - q[k].logprob) < 1e-4F;
      }
      if (!same) different += " the probabilities of request " + std::to_string(i) + ";";
    }
    expect(different.empty(), what + ", " + std::to_string(n_tokens) + " tokens: as the host's" +
                                  (different.empty() ? "" : "; not" + different));
    expect(device_.n_device() == n_least, what + ": " + std::to_string(device_.n_device()) +
                                              " of " + std::to_string(n_least) + " in the loop");
  }

  // Bits of every 32 tokens of the vocabulary.
  [[nodiscard]] std::shared_ptr<const std::vector<std::uint32_t>> pauses(std::uint32_t bits) const {
    const auto n_words = static_cast<std::size_t>(model_.n_vocab()) / 32 + 1;
    return std::make_shared<const std::vector<std::uint32_t>>(n_words, bits);
  }

  [[nodiscard]] std::vector<RequestSpec> without_ends(std::size_t n) const {
    return requests(n, [this](RequestSpec& spec, std::size_t i) {
      set_chain(spec.sampling, i);
      forbid_ends(spec);
      spec.max_tokens = 120;
    });
  }

  // Who stays goes on to the end, whoever goes.
  void test_cancels() {
    // What is drawn hangs on who shares a step, and so on when the host comes: no text may end.
    const auto asked = without_ends(6);
    for (const int when : {2, 3, 7, 20}) {
      const std::vector<Answer> found = device_.play(asked, asked.size(), [&](int n) {
        if (n == when) device_.cancel(1);
        if (n == when + 5) device_.cancel(4);
      });
      bool holds = found[1].reason == FinishReason::kCancelled &&
                   found[4].reason == FinishReason::kCancelled && found[1].tokens.size() < 120;
      for (const std::size_t i : {0, 2, 3, 5}) {
        holds =
            holds && found[i].reason == FinishReason::kTokenLimit && found[i].tokens.size() == 120;
      }
      expect(holds, "cancels before step " + std::to_string(when) + ", " +
                        std::to_string(found[1].tokens.size()) + " tokens made");
    }
  }

  void test_newcomers() {
    const auto asked = requests(8, [this](RequestSpec& spec, std::size_t i) {
      set_chain(spec.sampling, i);
      forbid_ends(spec);
      spec.max_tokens = 90;
    });
    const std::vector<Answer> found = device_.play(asked, 1, [&](int n) {
      if (n > 0 && n % 6 == 0 && n / 6 < 8) device_.begin(static_cast<std::size_t>(n / 6));
    });
    bool holds = true;
    for (const Answer& answer : found) {
      holds = holds && answer.reason == FinishReason::kTokenLimit && answer.tokens.size() == 90;
    }
    expect(holds, "eight come one after the other; " + std::to_string(device_.n_device()) +
                      " tokens in the loop");
  }

  void show_times() {
    constexpr std::int32_t kTokens = 200;
    for (const std::size_t n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      if (n > n_lanes_) break;
      const auto asked = requests(n, [](RequestSpec& spec, std::size_t i) {
        set_chain(spec.sampling, 8);
        spec.sampling.seed = static_cast<std::uint32_t>(i);
        spec.max_tokens = kTokens;
      });
      double seconds[2] = {};
      for (const int which : {0, 1, 0, 1}) {  // the second time counts
        const Clock::time_point begin = Clock::now();
        static_cast<void>((which == 0 ? host_ : device_).play(asked, n));
        seconds[which] = std::chrono::duration<double>(Clock::now() - begin).count();
      }
      const double n_tokens = static_cast<double>(n) * kTokens;
      std::printf("  %zu at once: host %.0f tok/s, device %.0f tok/s\n", n, n_tokens / seconds[0],
                  n_tokens / seconds[1]);
    }
  }

  static constexpr float likely_ = 5.0F;

  const Model& model_;
  Stage& host_;
  Stage& device_;
  const std::size_t n_lanes_;
};

void run(const char* path, DecodeLoop loop, std::int32_t n_lanes, bool has_streams) {
  const Clock::time_point begin = Clock::now();
  Steppers steppers(path, loop, n_lanes, !has_streams);
  std::printf("the model, the loop and its tests took %.0f ms, %llu graphs\n",
              std::chrono::duration<double, std::milli>(Clock::now() - begin).count(),
              static_cast<unsigned long long>(steppers.counters.n_window_graphs.get()));
  Stage on_host(*steppers.model, *steppers.host, steppers.counters);
  Stage on_device(*steppers.model, *steppers.device, steppers.counters);
  for (const LaneStepReport& step : steppers.device->lane_steps()) {
    std::printf("  %d rows of %d: %s, own %.0f us, ggml %.0f us\n", step.n_rows, step.n_graph_rows,
                step.why.empty() ? "own" : step.why.c_str(), step.own_us, step.ggml_us);
  }
  Crowds crowds(*steppers.model, on_host, on_device, static_cast<std::size_t>(n_lanes));
  has_streams ? crowds.test_streams() : crowds.test();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) return 2;
  const bool ahead = argc > 2 && std::strcmp(argv[2], "ahead") == 0;
  try {
    run(argv[1], ahead ? DecodeLoop::kAhead : DecodeLoop::kDevice,
        argc > 3 ? std::atoi(argv[3]) : kSlots, argc > 4);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
