#include "grammar/token_mask.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "grammar/token_mask_channel.h"

namespace unpaced {
namespace {

// Regular expressions are walked recursively; pages that are not touched take no memory.
constexpr std::size_t kWorkerStackBytes = 64UL << 20U;

template <typename Channel>
void* work(void* argument) noexcept {
  const std::unique_ptr<std::shared_ptr<Channel>> channel(
      static_cast<std::shared_ptr<Channel>*>(argument));
  pthread_setname_np(pthread_self(), "grammar");
  (*channel)->run();
  return nullptr;
}

}  // namespace

TokenMask::TokenMask(std::unique_ptr<TokenMatcher> matcher, std::unique_ptr<TriggerWatch> watch,
                     const TokenMaskLimits& limits)
    : channel_(std::make_shared<Channel>(std::move(matcher), std::move(watch), limits)) {
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
  return check_within(token, channel_->limits.answer_within).value_or(Verdict::kFailed);
}

std::optional<TokenMask::Verdict> TokenMask::check_within(TokenId token,
                                                          std::chrono::nanoseconds limit) noexcept {
  Channel& c = *channel_;
  if (c.waits) return Verdict::kAllowed;
  if (c.board != nullptr && c.board->is_slow() && c.has_mask()) c.board->count_in_time();
  const auto verdict = c.wait_for_verdict(token, limit);
  c.is_asked = !verdict.has_value();
  return verdict;
}

std::span<const std::uint32_t> TokenMask::words() const noexcept { return channel_->words; }

bool TokenMask::allows(TokenId token) const noexcept { return channel_->has_bit(token); }

void TokenMask::accept(TokenId token) noexcept {
  Channel& c = *channel_;
  if (c.waits) return c.wait_on(token);
  c.step += 1;
  // release: pairs with the worker's turn(). It orders this thread's reads of words() before.
  c.accepted.store(pack(c.step, token), std::memory_order_release);
  c.post();
}

bool TokenMask::waits() const noexcept { return channel_->waits; }

void TokenMask::use(std::shared_ptr<MaskBoard> board) noexcept {
  Channel& c = *channel_;
  c.board = std::move(board);
  // release: pairs with the worker's turn() and compute_mask().
  c.has_board.store(true, std::memory_order_release);
  c.post();
}

MaskBoard* TokenMask::board() const noexcept { return channel_->board.get(); }

std::uint32_t TokenMask::step() const noexcept { return channel_->step; }

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
