#include "token_mask.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "futex.h"

namespace unpaced {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kNoStep = UINT32_MAX;
constexpr int kSpins = 2000;  // a few microseconds: an answer that is on its way
// Regular expressions are walked recursively; pages that are not touched take no memory.
constexpr std::size_t kWorkerStackBytes = 64UL << 20U;

// A step (or a number of tokens) and a token in one word.
constexpr std::uint64_t pack(std::uint32_t step, TokenId token) noexcept {
  return static_cast<std::uint64_t>(step) << 32U | static_cast<std::uint32_t>(token);
}
constexpr std::uint32_t step_of(std::uint64_t packed) noexcept {
  return static_cast<std::uint32_t>(packed >> 32U);
}
constexpr TokenId token_of(std::uint64_t packed) noexcept {
  return static_cast<TokenId>(packed & UINT32_MAX);
}

void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

// What the two threads share. A word that only one of them changes, and that the other sleeps on,
// is raised after the news is stored; see post() and publish().
struct TokenMask::Channel {
  Channel(std::unique_ptr<TokenMatcher> m, const TokenMaskLimits& l)
      : matcher(std::move(m)),
        limits(l),
        words((static_cast<std::size_t>(matcher->n_vocab()) + 31) / 32, 0) {}

  // -- drawing thread to worker
  std::atomic<std::uint64_t> accepted{pack(0, 0)};     // tokens accepted so far, the last of them
  std::atomic<std::uint64_t> asked{pack(kNoStep, 0)};  // step, token: may it come?
  std::atomic<bool> closed{false};
  std::atomic<std::uint32_t> posted{0};  // the worker sleeps on it
  std::atomic<bool> worker_sleeps{false};
  std::uint32_t step = 0;  // drawing thread's own: tokens accepted

  // -- worker to drawing thread
  std::atomic<std::uint32_t> mask_step{kNoStep};         // the step that `words` is for
  std::atomic<std::uint64_t> allowed{pack(kNoStep, 0)};  // step, token: it may come
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
      compute_mask();
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
    const std::uint64_t last = accepted.load(std::memory_order_acquire);
    if (step_of(last) != worker_step) {
      worker_step = step_of(last);
      matcher->accept(token_of(last));
      if (usual_cost <= limits.eager_for) {
        compute_mask();
      } else if (std::string why = matcher->failure(); !why.empty()) {
        fail(std::move(why));
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
    const auto begin = Clock::now();
    matcher->fill(words);
    const auto taken = Clock::now() - begin;
    if (std::string why = matcher->failure(); !why.empty()) return fail(std::move(why));
    // Smoothed: the first mask of a state also builds the state's automaton.
    usual_cost = (3 * usual_cost + taken) / 4;
    n_masks.fetch_add(1, std::memory_order_relaxed);
    mask_ns.fetch_add(static_cast<std::uint64_t>(std::chrono::nanoseconds(taken).count()),
                      std::memory_order_relaxed);
    // release: pairs with check().
    mask_step.store(worker_step, std::memory_order_release);
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

  // Drawing thread: the verdict on what was asked, if there is one.
  bool has_verdict(TokenId token, Verdict& verdict) const noexcept {
    if (failed.load(std::memory_order_acquire)) {
      verdict = Verdict::kFailed;
    } else if (mask_step.load(std::memory_order_acquire) == step) {
      verdict = has_bit(token) ? Verdict::kAllowed : Verdict::kDenied;
    } else if (allowed.load(std::memory_order_acquire) == pack(step, token)) {
      verdict = Verdict::kAllowed;
    } else {
      return false;
    }
    return true;
  }

  bool has_bit(TokenId token) const noexcept {
    const auto i = static_cast<std::uint32_t>(token);
    return (words[i / 32] >> (i % 32) & 1U) != 0;
  }
};

namespace {

template <typename Channel>
void* work(void* argument) noexcept {
  const std::unique_ptr<std::shared_ptr<Channel>> channel(
      static_cast<std::shared_ptr<Channel>*>(argument));
  pthread_setname_np(pthread_self(), "grammar");
  (*channel)->run();
  return nullptr;
}

}  // namespace

TokenMask::TokenMask(std::unique_ptr<TokenMatcher> matcher, const TokenMaskLimits& limits)
    : channel_(std::make_shared<Channel>(std::move(matcher), limits)) {
  auto argument = std::make_unique<std::shared_ptr<Channel>>(channel_);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kWorkerStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, &work<Channel>, argument.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "the grammar's thread");
  }
  static_cast<void>(argument.release());
}

TokenMask::~TokenMask() {
  channel_->closed.store(true, std::memory_order_release);
  channel_->post();
}

TokenMask::Verdict TokenMask::check(TokenId token) noexcept {
  Channel& c = *channel_;
  Verdict verdict = Verdict::kFailed;
  if (c.has_verdict(token, verdict)) return verdict;
  // release: pairs with the worker's turn().
  c.asked.store(pack(c.step, token), std::memory_order_release);
  c.post();
  for (int i = 0; i < kSpins; ++i) {
    if (c.has_verdict(token, verdict)) return verdict;
    spin_pause();
  }
  const auto deadline = Clock::now() + c.limits.answer_within;
  for (;;) {
    c.drawer_sleeps.store(true, std::memory_order_seq_cst);
    const std::uint32_t seen = c.published.load(std::memory_order_seq_cst);
    const bool is_there = c.has_verdict(token, verdict);
    const auto left = deadline - Clock::now();
    if (!is_there && left > Clock::duration::zero()) futex_wait(c.published, seen, left);
    c.drawer_sleeps.store(false, std::memory_order_relaxed);
    if (is_there) return verdict;
    if (left <= Clock::duration::zero()) {
      c.timed_out.store(true, std::memory_order_release);
      return Verdict::kFailed;
    }
  }
}

std::span<const std::uint32_t> TokenMask::words() const noexcept { return channel_->words; }

bool TokenMask::allows(TokenId token) const noexcept { return channel_->has_bit(token); }

void TokenMask::accept(TokenId token) noexcept {
  Channel& c = *channel_;
  c.step += 1;
  // release: pairs with the worker's turn(). It orders this thread's reads of words() before.
  c.accepted.store(pack(c.step, token), std::memory_order_release);
  c.post();
}

std::string TokenMask::failure() const {
  const Channel& c = *channel_;
  if (c.failed.load(std::memory_order_acquire)) return c.failure;
  if (c.timed_out.load(std::memory_order_acquire)) {
    return "the grammar did not say in " + std::to_string(c.limits.answer_within.count()) +
           " ms whether a token may come next";
  }
  return {};
}

std::uint64_t TokenMask::n_masks() const noexcept {
  return channel_->n_masks.load(std::memory_order_relaxed);
}

std::uint64_t TokenMask::n_checks() const noexcept {
  return channel_->n_checks.load(std::memory_order_relaxed);
}

std::uint64_t TokenMask::mask_ns_total() const noexcept {
  return channel_->mask_ns.load(std::memory_order_relaxed);
}

}  // namespace unpaced
