// TokenMask: verdicts and masks are the matcher's, whoever is faster, and nobody waits for ever.
#include "grammar/token_mask.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace token_mask_test {
namespace {

using namespace std::chrono_literals;
using unpaced::TokenId;
using unpaced::TokenMask;
using unpaced::TokenMaskLimits;
using unpaced::TokenMatcher;
using Verdict = TokenMask::Verdict;

constexpr std::int32_t kVocab = 1000;  // not a multiple of 32

// What may come is a function of the tokens so far.
std::uint64_t mix(std::uint64_t state, TokenId token) {
  state ^= static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15U + (state << 6U) + (state >> 2U);
  return state * 0xbf58476d1ce4e5b9U;
}
bool may_come(std::uint64_t state, TokenId token) { return mix(state, token) >> 62U != 0; }

struct Pace {
  std::chrono::microseconds fill{0};
  const std::atomic<bool>* gate = nullptr;  // fill() waits until it is true
  std::int32_t fail_after = -1;             // accepted tokens
  std::int32_t throw_after = -1;
  bool has_later_masks = false;  // fill() takes no time but for the first one
};

class HashMatcher final : public TokenMatcher {
 public:
  HashMatcher(Pace pace, std::shared_ptr<std::atomic<int>> n_alive)
      : pace_(pace), n_alive_(std::move(n_alive)) {
    n_alive_->fetch_add(1);
  }
  ~HashMatcher() override { n_alive_->fetch_sub(1); }

  std::int32_t n_vocab() const noexcept override { return kVocab; }
  bool allows(TokenId token) override { return may_come(state_, token); }
  bool has_mask() override { return pace_.has_later_masks && n_accepted_ > 0; }
  void fill(std::span<std::uint32_t> words) override {
    if (pace_.fill > 0us && !has_mask()) std::this_thread::sleep_for(pace_.fill);
    while (pace_.gate != nullptr && !pace_.gate->load()) std::this_thread::sleep_for(100us);
    for (auto& word : words) word = 0;
    for (TokenId token = 0; token < kVocab; ++token) {
      const auto i = static_cast<std::uint32_t>(token);
      if (may_come(state_, token)) words[i / 32] |= 1U << (i % 32);
    }
  }
  void accept(TokenId token) override {
    state_ = mix(state_, token);
    n_accepted_ += 1;
    if (n_accepted_ == pace_.throw_after) throw std::runtime_error("the matcher threw");
  }
  void accept_text(std::string_view text) override {
    for (const char c : text) state_ = mix(state_, c);
  }
  void restart() override {
    state_ = 1;
    n_accepted_ = 0;
  }
  std::string failure() const override {
    return pace_.fail_after >= 0 && n_accepted_ >= pace_.fail_after ? "the matcher failed" : "";
  }

 private:
  const Pace pace_;
  const std::shared_ptr<std::atomic<int>> n_alive_;
  std::uint64_t state_ = 1;
  std::int32_t n_accepted_ = 0;
};

struct Fixture {
  explicit Fixture(Pace pace, TokenMaskLimits limits = {})
      : mask(std::make_unique<TokenMask>(std::make_unique<HashMatcher>(pace, n_alive), nullptr,
                                         limits)) {}
  std::shared_ptr<std::atomic<int>> n_alive = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<TokenMask> mask;

  bool worker_is_gone() {
    for (int i = 0; i < 2000 && n_alive->load() != 0; ++i) std::this_thread::sleep_for(1ms);
    return n_alive->load() == 0;
  }
};

// Draws `n` tokens as a stepper does and compares every answer with the function itself.
void draw(Fixture& fixture, int n, std::uint32_t seed, std::chrono::microseconds pause) {
  std::mt19937 random(seed);
  std::uint64_t state = 1;
  TokenMask& mask = *fixture.mask;
  for (int i = 0; i < n; ++i) {
    if (pause > 0us && random() % 4 == 0) std::this_thread::sleep_for(pause);
    auto token = static_cast<TokenId>(random() % kVocab);
    const Verdict verdict = mask.check(token);
    CHECK_EQ(verdict == Verdict::kAllowed, may_come(state, token));
    CHECK(verdict != Verdict::kFailed);
    if (verdict == Verdict::kDenied) {
      const auto words = mask.words();
      CHECK_EQ(words.size(), 32U);
      CHECK_EQ(words.back() >> (kVocab % 32), 0U);
      for (TokenId t = 0; t < kVocab; ++t) CHECK_EQ(mask.allows(t), may_come(state, t));
      while (!mask.allows(token)) token = (token + 1) % kVocab;
      CHECK(mask.check(token) == Verdict::kAllowed);
    }
    mask.accept(token);
    state = mix(state, token);
  }
}

TEST(eager_masks_are_the_matchers) {
  Fixture fixture(Pace{});
  draw(fixture, 20'000, 1, 0us);
  CHECK(fixture.mask->failure().empty());
  CHECK(fixture.mask->n_masks() > 10'000U);
}

TEST(masks_that_are_there_before_they_are_wanted) {
  Fixture fixture(Pace{});
  draw(fixture, 500, 2, 200us);
}

TEST(slow_masks_are_made_only_after_a_refusal) {
  Fixture fixture(Pace{.fill = 2ms}, {.eager_for = 100us});
  draw(fixture, 400, 3, 0us);
  // A quarter of the tokens is refused; eager would be 400.
  CHECK(fixture.mask->n_masks() < 200U);
  CHECK(fixture.mask->n_checks() > 200U);
}

TEST(masks_that_the_matcher_has_are_used_where_it_is_slow) {
  Fixture fixture(Pace{.fill = 2ms, .has_later_masks = true}, {.eager_for = 100us});
  draw(fixture, 400, 3, 0us);
  CHECK(fixture.mask->n_masks() >= 400U);
  CHECK_EQ(fixture.mask->n_checks(), 0U);
}

TEST(several_masks_at_once) {
  std::vector<std::thread> drawers;
  for (std::uint32_t i = 0; i < 4; ++i) {
    drawers.emplace_back([i] {
      Fixture fixture(Pace{});
      draw(fixture, 3'000, 10 + i, i % 2 == 0 ? 0us : 50us);
    });
  }
  for (auto& drawer : drawers) drawer.join();
}

TEST(a_worker_that_does_not_answer_fails_the_request_in_time) {
  Fixture fixture(Pace{.fill = 2s}, {.answer_within = 50ms});
  const auto begin = std::chrono::steady_clock::now();
  CHECK(fixture.mask->check(1) == Verdict::kFailed);
  CHECK(std::chrono::steady_clock::now() - begin < 1500ms);
  CHECK(fixture.mask->failure().find("50 ms") != std::string::npos);
}

// What a drawer on the other side of a board does: waits for the step's mask there, and asks
// nobody.
class BoardReader {
 public:
  explicit BoardReader(const std::uint32_t* memory) : memory_(memory) {}

  [[nodiscard]] bool has(std::uint32_t step) const {
    // acquire: pairs with MaskBoard::write().
    return std::atomic_ref(const_cast<std::uint32_t&>(*memory_)).load(std::memory_order_acquire) ==
           step;
  }
  [[nodiscard]] bool allows(TokenId token) const {
    const auto i = static_cast<std::size_t>(token);
    return (memory_[unpaced::kMaskBoardHead + i / 32] >> (i % 32) & 1U) != 0;
  }

 private:
  const std::uint32_t* memory_;
};

struct Board {
  std::vector<std::uint32_t> memory = std::vector<std::uint32_t>(unpaced::mask_board_words(kVocab));
  std::shared_ptr<unpaced::MaskBoard> board =
      std::make_shared<unpaced::MaskBoard>(memory, memory.data());
  BoardReader reader{memory.data()};
};

// A step of who asks: the first token that may come is taken, once the worker has said whether it
// makes the step's mask. Returns whether it does.
bool make_step(TokenMask& mask, const Board& on, std::uint32_t step, std::uint64_t& state) {
  while (!on.reader.has(step) && !on.reader.has(step | unpaced::kMaskLeftOut)) {
    std::this_thread::yield();
  }
  const bool is_made = on.reader.has(step);
  TokenId token = 0;
  while (!may_come(state, token)) ++token;
  CHECK(mask.check(token) == Verdict::kAllowed);
  mask.accept(token);
  state = mix(state, token);
  return is_made;
}

TEST(a_board_has_the_mask_of_every_step) {
  Board on;
  Fixture fixture(Pace{}, {.eager_for = 10s});
  TokenMask& mask = *fixture.mask;
  std::mt19937 random(6);
  std::uint64_t state = 1;
  for (std::uint32_t step = 0; step < 2000; ++step) {
    // Some steps are the drawing thread's own, before it has a board and between others.
    if (step == 5) mask.use(on.board);
    CHECK_EQ(mask.step(), step);
    auto token = static_cast<TokenId>(random() % kVocab);
    if (step < 5 || step % 7 == 0) {
      CHECK(mask.check(token) != Verdict::kFailed);
      while (!mask.allows(token)) token = (token + 1) % kVocab;
    } else {
      while (!on.reader.has(step)) std::this_thread::yield();
      for (TokenId t = 0; t < kVocab; ++t) CHECK_EQ(on.reader.allows(t), may_come(state, t));
      while (!on.reader.allows(token)) token = (token + 1) % kVocab;
    }
    mask.accept(token);
    state = mix(state, token);
  }
  CHECK(mask.failure().empty());
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());  // before the memory goes
}

TEST(a_board_that_comes_late_gets_the_mask_at_hand) {
  Board on;
  Fixture fixture(Pace{});
  CHECK(fixture.mask->check(1) != Verdict::kFailed);  // the mask is there
  fixture.mask->use(on.board);
  while (!on.reader.has(0)) std::this_thread::yield();
  for (TokenId t = 0; t < kVocab; ++t) CHECK_EQ(on.reader.allows(t), may_come(1, t));
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());
}

TEST(a_board_tells_of_a_mask_that_is_not_made) {
  Board on;
  Fixture fixture(Pace{.fill = 2ms}, {.eager_for = 100us, .eager_on_board = 100us});
  TokenMask& mask = *fixture.mask;
  std::uint64_t state = 1;
  mask.use(on.board);
  int n_left_out = 0;
  for (std::uint32_t step = 0; step < 30; ++step) {
    n_left_out += make_step(mask, on, step, state) ? 0 : 1;
  }
  CHECK(n_left_out > 20);
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());
}

TEST(masks_that_are_asked_for_elsewhere_are_made_for_a_board_until_it_is_slow) {
  Board on;
  Fixture fixture(Pace{.fill = 2ms}, {.eager_for = 100us, .eager_on_board = 10s});
  TokenMask& mask = *fixture.mask;
  std::uint64_t state = 1;
  mask.use(on.board);
  std::uint32_t step = 0;
  for (; step < 10; ++step) CHECK(make_step(mask, on, step, state));
  while (!on.board->is_slow()) on.board->count_late();
  static_cast<void>(make_step(mask, on, step++, state));  // under way before
  for (; step < 20; ++step) CHECK(!make_step(mask, on, step, state));
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());
}

TEST(the_worker_keeps_its_board_until_it_goes) {
  std::atomic<bool> gate{false};
  Board on;
  Fixture fixture(Pace{.gate = &gate});
  fixture.mask->use(on.board);
  fixture.mask.reset();
  CHECK_EQ(on.board.use_count(), 2);  // the worker is within fill()
  gate.store(true);
  CHECK(fixture.worker_is_gone());
  for (int i = 0; i < 2000 && on.board.use_count() != 1; ++i) std::this_thread::sleep_for(1ms);
  CHECK_EQ(on.board.use_count(), 1);
}

TEST(late_masks_make_a_board_slow) {
  Board on;
  for (int i = 0; i < 19; ++i) on.board->count_late();
  CHECK(!on.board->is_slow());
  on.board->count_late();
  CHECK(on.board->is_slow());
  on.board->clear();
  CHECK(!on.board->is_slow());
  for (int round = 0; round < 100; ++round) {  // one in ten
    on.board->count_late();
    for (int i = 0; i < 9; ++i) on.board->count_in_time();
  }
  CHECK(!on.board->is_slow());
  for (int round = 0; round < 100; ++round) {  // one in five
    on.board->count_late();
    for (int i = 0; i < 4; ++i) on.board->count_in_time();
  }
  CHECK(on.board->is_slow());
  on.board->count_late();  // no later than slow
  for (int i = 0; i < 79; ++i) on.board->count_in_time();
  CHECK(on.board->is_slow());
  on.board->count_in_time();
  CHECK(!on.board->is_slow());
}

TEST(masks_that_are_there_when_they_are_asked_for_make_a_slow_board_fast_again) {
  Board on;
  Fixture fixture(Pace{}, {.eager_for = 10s});
  TokenMask& mask = *fixture.mask;
  mask.use(on.board);
  while (!on.board->is_slow()) on.board->count_late();
  std::uint64_t state = 1;
  for (std::uint32_t step = 0; step < 80; ++step) {
    CHECK(on.board->is_slow());
    CHECK(make_step(mask, on, step, state));
  }
  CHECK(!on.board->is_slow());
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());
}

TEST(a_limited_wait_ends_without_a_verdict_until_there_is_one) {
  std::atomic<bool> gate{false};
  Fixture fixture(Pace{.gate = &gate}, {.answer_within = 60s});
  TokenMask& mask = *fixture.mask;
  CHECK(!mask.check_within(1, 0ns));
  CHECK(!mask.check_within(1, 1ms));
  gate.store(true);
  std::optional<Verdict> verdict;
  while (!verdict) verdict = mask.check_within(1, 5ms);
  CHECK_EQ(*verdict == Verdict::kAllowed, may_come(1, 1));
  CHECK(mask.check_within(1, 0ns) == verdict);
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());  // before the gate goes
}

TEST(limited_waits_together_fail_when_one_would) {
  std::atomic<bool> gate{false};
  Fixture fixture(Pace{.gate = &gate}, {.answer_within = 50ms});
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Verdict> verdict;
  while (!verdict) verdict = fixture.mask->check_within(1, 1ms);
  CHECK(*verdict == Verdict::kFailed);
  CHECK(std::chrono::steady_clock::now() - begin >= 50ms);
  CHECK(!fixture.mask->failure().empty());
  gate.store(true);  // the worker may go
  fixture.mask.reset();
  CHECK(fixture.worker_is_gone());
}

TEST(a_failing_matcher_fails_the_request) {
  for (const Pace pace : {Pace{.fail_after = 3}, Pace{.throw_after = 3}}) {
    Fixture fixture(pace);
    draw(fixture, 2, 4, 0us);
    TokenId token = 0;
    while (fixture.mask->check(token) != Verdict::kAllowed) ++token;
    fixture.mask->accept(token);
    CHECK(fixture.mask->check(0) == Verdict::kFailed);
    CHECK(fixture.mask->failure().find("the matcher") == 0);
    CHECK(fixture.mask->check(1) == Verdict::kFailed);
  }
}

TEST(the_worker_goes_when_the_mask_goes) {
  for (int i = 0; i < 50; ++i) {
    Fixture fixture(Pace{.fill = std::chrono::microseconds(i % 3 * 500)});
    if (i % 2 == 0) draw(fixture, i / 2, 5, 0us);
    fixture.mask.reset();
    CHECK(fixture.worker_is_gone());
  }
}

}  // namespace
}  // namespace token_mask_test
