// What the two threads of a TokenMask share; token_mask.h has the protocol. For token_mask.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/futex.h"
#include "base/spin_pause.h"
#include "grammar/mask_board.h"
#include "grammar/token_mask.h"
#include "grammar/trigger_watch.h"

namespace unpaced {

inline constexpr std::uint32_t kNoStep = kNoMaskStep;
inline constexpr int kSpins = 2000;  // a few microseconds: an answer that is on its way

// A step (or a number of tokens) and a token in one word.
[[nodiscard]] constexpr std::uint64_t pack(std::uint32_t step, TokenId token) noexcept {
  return static_cast<std::uint64_t>(step) << 32U | static_cast<std::uint32_t>(token);
}
[[nodiscard]] constexpr std::uint32_t step_of(std::uint64_t packed) noexcept {
  return static_cast<std::uint32_t>(packed >> 32U);
}
[[nodiscard]] constexpr TokenId token_of(std::uint64_t packed) noexcept {
  return static_cast<TokenId>(packed & UINT32_MAX);
}

// What the two threads share. A word that only one of them changes, and that the other sleeps on,
// is raised after the news is stored; see post() and publish().
struct TokenMask::Channel {
  Channel(std::unique_ptr<TokenMatcher> m, std::unique_ptr<TriggerWatch> w,
          const TokenMaskLimits& l)
      : watch(std::move(w)),
        waits(watch != nullptr),
        matcher(std::move(m)),
        limits(l),
        is_begun(watch == nullptr),
        words((static_cast<std::size_t>(matcher->n_vocab()) + 31) / 32, 0) {}

  // -- drawing thread to worker
  std::atomic<std::uint64_t> accepted{pack(0, 0)};     // tokens accepted so far, the last of them
  std::atomic<std::uint64_t> asked{pack(kNoStep, 0)};  // step, token: may it come?
  std::atomic<bool> closed{false};
  std::atomic<std::uint32_t> posted{0};  // the worker sleeps on it
  std::atomic<bool> worker_sleeps{false};
  std::uint32_t step = 0;  // drawing thread's own: tokens accepted
  // Drawing thread's own: whether `asked` is open, and until when the worker may answer.
  bool is_asked = false;
  std::chrono::steady_clock::time_point fails_at;
  // A lazy grammar: triggers found so far. What `watch` says of the last one is the worker's to
  // read until it has answered for it.
  std::atomic<std::uint32_t> n_triggers{0};
  const std::unique_ptr<TriggerWatch> watch;  // null: the grammar holds from the first token on
  bool waits;                                 // drawing thread's own: for a trigger
  std::shared_ptr<MaskBoard> board;           // written once, before `has_board` is set
  std::atomic<bool> has_board{false};

  // -- worker to drawing thread
  std::atomic<std::uint32_t> mask_step{kNoStep};         // the step that `words` is for
  std::atomic<std::uint64_t> allowed{pack(kNoStep, 0)};  // step, token: it may come
  std::atomic<std::uint32_t> n_refused{0};  // the trigger that the grammar cannot begin with
  std::atomic<bool> failed{false};
  std::atomic<std::uint32_t> published{0};  // the drawing thread sleeps on it
  std::atomic<bool> drawer_sleeps{false};
  std::string failure;  // written before `failed` is set, never after

  std::atomic<bool> timed_out{false};  // set by the drawing thread
  std::atomic<std::uint64_t> n_masks{0};
  std::atomic<std::uint64_t> n_checks{0};
  std::atomic<std::uint64_t> mask_ns{0};

  // -- worker's own
  const std::unique_ptr<TokenMatcher> matcher;
  const TokenMaskLimits limits;
  std::uint32_t worker_step = 0;
  std::uint32_t n_triggers_seen = 0;
  bool is_begun;
  bool knows_board = false;
  std::chrono::nanoseconds usual_cost{0};  // of a mask

  // Written by the worker before it sets mask_step to a step, read by the drawing thread from then
  // until it accepts that step's token.
  std::vector<std::uint32_t> words;

  // Drawing thread (close() apart: the owner's). seq_cst: either the worker sees the raised word
  // before it sleeps, or its flag is seen here.
  void post() noexcept {
    posted.fetch_add(1, std::memory_order_seq_cst);
    if (worker_sleeps.load(std::memory_order_seq_cst)) futex_wake(posted);
  }
  // Worker; the same the other way round.
  void publish() noexcept {
    published.fetch_add(1, std::memory_order_seq_cst);
    if (drawer_sleeps.load(std::memory_order_seq_cst)) futex_wake(published);
  }

  void run() noexcept {
    try {
      if (is_begun) compute_mask();
      while (turn()) {
      }
    } catch (const std::exception& e) {
      fail(e.what());
    } catch (...) {
      fail("unknown exception");
    }
  }

  // Worker: does what there is to do, or sleeps. False: closed.
  bool turn() {
    // acquire: pairs with post(); what was posted before is seen below.
    const std::uint32_t seen = posted.load(std::memory_order_acquire);
    if (closed.load(std::memory_order_acquire)) return false;
    if (failed.load(std::memory_order_relaxed)) return sleep(seen);
    if (!knows_board && has_board.load(std::memory_order_acquire)) {
      knows_board = true;
      if (mask_step.load(std::memory_order_relaxed) == worker_step)
        board->write(words, worker_step);
    }
    if (!is_begun) {
      const std::uint32_t n = n_triggers.load(std::memory_order_acquire);
      if (n == n_triggers_seen) return sleep(seen);
      n_triggers_seen = n;
      begin();
      return true;
    }
    const std::uint64_t last = accepted.load(std::memory_order_acquire);
    if (step_of(last) != worker_step) {
      worker_step = step_of(last);
      matcher->accept(token_of(last));
      if (usual_cost <= eager_limit() || matcher->has_mask()) {
        compute_mask();
      } else if (std::string why = matcher->failure(); !why.empty()) {
        fail(std::move(why));
      } else if (knows_board) {
        board->leave_out(worker_step);
      }
      return true;
    }
    const std::uint64_t question = asked.load(std::memory_order_acquire);
    if (step_of(question) == worker_step && !is_answered(question)) {
      answer(question);
      return true;
    }
    return sleep(seen);
  }

  [[nodiscard]] std::chrono::nanoseconds eager_limit() const noexcept {
    return knows_board && !board->is_slow() ? limits.eager_on_board : limits.eager_for;
  }

  // The grammar begins with what its trigger was made of.
  void begin() {
    matcher->accept_text(watch->text());
    for (const TokenId token : watch->tokens()) matcher->accept(token);
    if (std::string why = matcher->failure(); !why.empty()) {
      if (!watch->may_resume()) return fail(std::move(why));
      matcher->restart();
      // release: pairs with has_verdict(); the watch is the drawing thread's again.
      n_refused.store(n_triggers_seen, std::memory_order_release);
      return publish();
    }
    is_begun = true;
    compute_mask();
  }

  bool is_answered(std::uint64_t question) const noexcept {  // worker: it alone writes these
    return mask_step.load(std::memory_order_relaxed) == worker_step ||
           allowed.load(std::memory_order_relaxed) == question;
  }

  void answer(std::uint64_t question) {
    n_checks.fetch_add(1, std::memory_order_relaxed);
    usual_cost -= usual_cost / 64;  // so that some fifty tokens later a mask is tried again
    if (!matcher->allows(token_of(question))) return compute_mask();
    if (std::string why = matcher->failure(); !why.empty()) return fail(std::move(why));
    // release: pairs with check().
    allowed.store(question, std::memory_order_release);
    publish();
  }

  void compute_mask() {
    const auto begun = std::chrono::steady_clock::now();
    const bool was_there = matcher->has_mask();
    matcher->fill(words);
    const auto taken = std::chrono::steady_clock::now() - begun;
    if (std::string why = matcher->failure(); !why.empty()) return fail(std::move(why));
    // Of masks that are made. Smoothed: the first one of a state also builds the state's automaton.
    if (!was_there) usual_cost = (3 * usual_cost + taken) / 4;
    n_masks.fetch_add(1, std::memory_order_relaxed);
    mask_ns.fetch_add(static_cast<std::uint64_t>(std::chrono::nanoseconds(taken).count()),
                      std::memory_order_relaxed);
    // release: pairs with check().
    mask_step.store(worker_step, std::memory_order_release);
    if (knows_board) board->write(words, worker_step);
    publish();
  }

  void fail(std::string why) {
    failure = std::move(why);
    // release: pairs with failure() and check().
    failed.store(true, std::memory_order_release);
    publish();
  }

  bool sleep(std::uint32_t seen) noexcept {
    worker_sleeps.store(true, std::memory_order_seq_cst);
    if (posted.load(std::memory_order_seq_cst) == seen) futex_wait(posted, seen);
    worker_sleeps.store(false, std::memory_order_relaxed);
    return true;
  }

  // Drawing thread: the token came while no grammar holds.
  void wait_on(TokenId token) noexcept {
    if (!watch->accept(token)) return;
    waits = false;
    // release: pairs with turn().
    n_triggers.fetch_add(1, std::memory_order_release);
    post();
  }

  // Drawing thread: the step's mask is there.
  [[nodiscard]] bool has_mask() const noexcept {
    return mask_step.load(std::memory_order_acquire) == step;
  }

  // Drawing thread: the verdict on what was asked, if there is one.
  bool has_verdict(TokenId token, Verdict& verdict) noexcept {
    const std::uint32_t refused = n_refused.load(std::memory_order_acquire);
    if (refused != 0 && refused == n_triggers.load(std::memory_order_relaxed)) {
      waits = true;
      verdict = Verdict::kAllowed;
    } else if (failed.load(std::memory_order_acquire)) {
      verdict = Verdict::kFailed;
    } else if (has_mask()) {
      verdict = has_bit(token) ? Verdict::kAllowed : Verdict::kDenied;
    } else if (allowed.load(std::memory_order_acquire) == pack(step, token)) {
      verdict = Verdict::kAllowed;
    } else {
      return false;
    }
    return true;
  }

  // Drawing thread: see check_within().
  std::optional<Verdict> wait_for_verdict(TokenId token, std::chrono::nanoseconds limit) noexcept {
    Verdict verdict = Verdict::kFailed;
    if (has_verdict(token, verdict)) return verdict;
    const auto begun = std::chrono::steady_clock::now();
    if (!is_asked || asked.load(std::memory_order_relaxed) != pack(step, token)) {
      fails_at = begun + limits.answer_within;
      asked.store(pack(step, token), std::memory_order_release);  // pairs with turn()
      post();
    }
    for (int i = 0; i < kSpins && limit > limit.zero(); ++i) {
      if (has_verdict(token, verdict)) return verdict;
      spin_pause();
    }
    const auto deadline = std::min(fails_at, begun + limit);
    for (;;) {
      drawer_sleeps.store(true, std::memory_order_seq_cst);
      const std::uint32_t seen = published.load(std::memory_order_seq_cst);
      const bool is_there = has_verdict(token, verdict);
      const auto now = std::chrono::steady_clock::now();
      const bool is_over = now >= deadline;
      if (!is_there && !is_over) futex_wait(published, seen, deadline - now);
      drawer_sleeps.store(false, std::memory_order_relaxed);
      if (is_there) return verdict;
      if (is_over && now < fails_at) return std::nullopt;
      if (!is_over) continue;
      timed_out.store(true, std::memory_order_release);
      return Verdict::kFailed;
    }
  }

  bool has_bit(TokenId token) const noexcept {
    const auto i = static_cast<std::uint32_t>(token);
    return (words[i / 32] >> (i % 32) & 1U) != 0;
  }
};

}  // namespace unpaced
