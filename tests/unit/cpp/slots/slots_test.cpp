// What becomes of the slots' contents: who takes which slot, the states in host memory, actions.
#include <algorithm>

#include "check.h"
#include "front_end.h"
#include "kept/prompt_cache.h"
#include "scripted_stepper.h"
#include "slots/chunk_reuse.h"
#include "slots/context_shift.h"
#include "slots/slot_choice.h"

namespace slots_test {
namespace {

using unpaced::CacheKey;
using unpaced::choose_slot;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::KeptState;
using unpaced::plan_context_shift;
using unpaced::PromptCache;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::ReusableChunk;
using unpaced::Slot;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::SlotPhase;
using unpaced::SlotState;
using unpaced::TokenId;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::prompt_of;
using unpaced::test::Script;

SlotState state_of(std::vector<TokenId> tokens) {
  SlotState state;
  state.allocate(tokens.size() * sizeof(TokenId));
  std::copy_n(reinterpret_cast<const std::byte*>(tokens.data()), state.n_bytes, state.data.get());
  state.tokens = std::move(tokens);
  return state;
}

KeptState kept(std::vector<TokenId> tokens) {
  KeptState state;
  state.n_bytes = tokens.size() * sizeof(TokenId);
  state.tokens = std::move(tokens);
  return state;
}

// --- choice --------------------------------------------------------------------------------

TEST(the_slot_most_like_the_prompt_is_taken_if_it_is_enough_like_it) {
  std::vector<Slot> slots(3);
  for (std::int32_t i = 0; i < 3; ++i) slots[static_cast<std::size_t>(i)].id = i;
  slots[0].cells = prompt_of(5);
  slots[1].cells = prompt_of(50);
  slots[2].cells = prompt_of(100, 5000);
  slots[2].last_used_step = 1;
  slots[0].last_used_step = slots[1].last_used_step = 2;
  RequestSpec spec;
  spec.prompt = prompt_of(100);
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[1]);
  CHECK(!choose_slot(slots, spec, 0.1F).takes_over);
  slots[1].phase = SlotPhase::kDecode;
  // 0.05 of the prompt is not enough: the one unused for longest, whose contents would be lost.
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[2]);
  CHECK(choose_slot(slots, spec, 0.1F).takes_over);
  CHECK(choose_slot(slots, spec, 0.04F).slot == &slots[0]);
  CHECK(choose_slot(slots, spec, 0.0F).slot == &slots[2]);
  spec.cache_prompt = false;
  slots[1].phase = SlotPhase::kIdle;
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[2]);
}

TEST(a_slot_computed_with_other_adapters_is_like_no_prompt) {
  std::vector<Slot> slots(2);
  for (std::int32_t i = 0; i < 2; ++i) {
    slots[static_cast<std::size_t>(i)].id = i;
    slots[static_cast<std::size_t>(i)].cells = prompt_of(50 - 10 * i);
    slots[static_cast<std::size_t>(i)].lora_scales = {i == 0 ? 1.0F : 0.5F};
  }
  slots[1].last_used_step = 1;
  RequestSpec spec;
  spec.prompt = prompt_of(100);
  spec.lora_scales = {0.5F};
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[1]);
  spec.lora_scales = {0.0F};
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[0]);
  CHECK(choose_slot(slots, spec, 0.1F).takes_over);
}

TEST(a_slot_of_another_cache_domain_is_like_no_prompt) {
  std::vector<Slot> slots(2);
  for (std::int32_t i = 0; i < 2; ++i) {
    slots[static_cast<std::size_t>(i)].id = i;
    slots[static_cast<std::size_t>(i)].cells = prompt_of(50);
    slots[static_cast<std::size_t>(i)].cache_domain = static_cast<std::uint64_t>(i);
  }
  RequestSpec spec;
  spec.prompt = prompt_of(100);
  spec.cache_domain = 1;
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[1]);
  CHECK(!choose_slot(slots, spec, 0.1F).takes_over);
  spec.cache_domain = 2;
  CHECK(choose_slot(slots, spec, 0.1F).takes_over);
}

TEST(kept_states_of_other_adapters_and_domains_are_none_of_a_prompts) {
  PromptCache cache(-1);
  const std::vector<TokenId> tokens = prompt_of(40);
  const std::vector<float> one = {1.0F};
  const std::vector<float> half = {0.5F};
  KeptState state = kept(tokens);
  state.lora_scales = one;
  cache.put(std::move(state));
  CHECK(!cache.wants(tokens, 1, {one}));
  for (const CacheKey& other : {CacheKey{half}, CacheKey{one, 7}}) {
    CHECK(cache.wants(tokens, 1, other));
    cache.make_room(tokens, 1, other);
    CHECK(cache.size() == 1U);
    CHECK_EQ(cache.longest_match(prompt_of(50), other), 0U);
    CHECK(cache.find({}, prompt_of(50), other) == nullptr);
  }
  CHECK_EQ(cache.longest_match(prompt_of(50), {one}), 40U);
  CHECK(cache.find({}, prompt_of(50), {one}) != nullptr);
}

TEST(a_wanted_slot_wraps_and_is_waited_for) {
  std::vector<Slot> slots(2);
  slots[1].id = 1;
  slots[1].cells = prompt_of(50, 7000);
  RequestSpec spec;
  spec.prompt = prompt_of(10);
  spec.id_slot = 7;
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[1]);
  CHECK(choose_slot(slots, spec, 0.1F).takes_over);
  spec.id_slot = 4;
  CHECK(choose_slot(slots, spec, 0.1F).slot == &slots[0]);
  CHECK(!choose_slot(slots, spec, 0.1F).takes_over);  // it holds nothing
  slots[0].phase = SlotPhase::kPrefill;
  CHECK(choose_slot(slots, spec, 0.1F).slot == nullptr);
}

// --- states in host memory -------------------------------------------------------------------

TEST(the_prompt_cache_keeps_to_its_limit_and_drops_the_oldest) {
  PromptCache cache(400);
  CHECK(!cache.wants(prompt_of(101), 404));
  for (const TokenId base : {1000, 2000, 3000}) {
    CHECK(cache.wants(prompt_of(40, base), 160));
    cache.make_room(prompt_of(40, base), 160);
    cache.put(kept(prompt_of(40, base)));
    CHECK(cache.n_bytes() <= 400U);
  }
  CHECK_EQ(cache.size(), 2U);
  CHECK(cache.find({}, prompt_of(40, 1000)) == nullptr);
  CHECK(!cache.wants(prompt_of(39, 3000), 156));  // a prompt that one kept begins with
  cache.make_room(prompt_of(60, 3000), 240);      // the longer one takes the shorter one's place
  cache.put(kept(prompt_of(60, 3000)));
  CHECK_EQ(cache.size(), 2U);
  CHECK_EQ(cache.n_bytes(), 400U);
  const KeptState taken = cache.take(*cache.find({}, prompt_of(70, 3000)));
  CHECK_EQ(taken.tokens.size(), 60U);
  CHECK_EQ(cache.n_bytes(), 400U);  // until the caller has no use for it
  CHECK(!cache.wants(prompt_of(41, 4000), 164));
  cache.release(taken);
  CHECK_EQ(cache.n_bytes(), 160U);
  CHECK(!PromptCache(0).wants(prompt_of(1), 4));
  CHECK(PromptCache(-1).wants(prompt_of(1000), 4000));
}

TEST(a_kept_state_is_taken_only_if_it_serves_better_than_the_slot) {
  PromptCache cache(-1);
  cache.put(kept(prompt_of(40)));
  const std::vector<TokenId> held = prompt_of(30);
  CHECK(cache.find(held, prompt_of(25)) == nullptr);  // the slot has it all
  std::vector<TokenId> mostly_other = prompt_of(9);
  mostly_other.push_back(1);
  CHECK(cache.find({}, mostly_other) == nullptr);  // less than a quarter of the state is of use
  const KeptState* found = cache.find(prompt_of(3, 9000), prompt_of(50));
  REQUIRE(found != nullptr);
  KeptState taken = cache.take(*found);
  CHECK_EQ(cache.size(), 0U);
  cache.put_back(taken);
  CHECK_EQ(cache.size(), 1U);
  CHECK_EQ(cache.n_bytes(), 160U);
}

TEST(a_kept_state_lends_its_beginning_if_it_is_more_than_is_there) {
  PromptCache cache(-1);
  cache.put(kept(prompt_of(40)));
  cache.put(kept(prompt_of(60)));
  CHECK(cache.find({}, prompt_of(9)) == nullptr);
  const KeptState* found = cache.find_lender(0, prompt_of(9));
  REQUIRE(found != nullptr);
  CHECK_EQ(found->tokens.size(), 40U);  // the first of those that have as much
  found = cache.find_lender(8, prompt_of(50));
  REQUIRE(found != nullptr);
  CHECK_EQ(found->tokens.size(), 60U);
  CHECK(cache.find_lender(9, prompt_of(9)) == nullptr);
  CHECK(cache.find_lender(0, prompt_of(9, 7000)) == nullptr);
  CHECK(cache.find_lender(0, prompt_of(9), {.cache_domain = 5}) == nullptr);
  KeptState parked = kept(prompt_of(9, 8000));
  parked.ticket = 1;
  cache.put(std::move(parked));
  CHECK(cache.find_lender(0, prompt_of(9, 8000)) == nullptr);
}

TEST(a_prompt_comes_back_after_its_slot_was_taken_over) {
  Script script;
  FrontEnd front({.n_slots = 1, .keeper = {.cache_bytes_max = -1}});
  front.start(factory_of(script));
  const RequestId first = front.submit(prompt_of(40), 3);
  CHECK(front.run_until_finished(first));
  const RequestId second = front.submit(prompt_of(40, 5000), 3);
  CHECK(front.run_until_finished(second));
  CHECK_EQ(front.events(second).front().prompt.updated_cache, 1);
  CHECK_EQ(front.thread().counters().n_cache_states.get(), 1U);
  CHECK_EQ(front.thread().counters().n_cache_bytes.get(), 42U * sizeof(TokenId));
  const RequestId again = front.submit(prompt_of(40), 3);
  CHECK(front.run_until_finished(again));
  CHECK_EQ(front.events(again).front().prompt.n_cached, 39);
  CHECK(front.tokens(again) == unpaced::test::scripted_tokens(again, 3));
}

TEST(the_prompt_of_a_request_that_wants_no_reuse_is_not_copied) {
  Script script;
  FrontEnd front({.n_slots = 1, .keeper = {.cache_bytes_max = -1}});
  front.start(factory_of(script));
  for (const bool cache_prompt : {false, true, true}) {
    auto spec = std::make_unique<RequestSpec>();
    spec->prompt = prompt_of(40, 1000 * (1 + (cache_prompt ? 1 : 0)));
    spec->max_tokens = 3;
    spec->cache_prompt = cache_prompt;
    const RequestId id = front.submit(std::move(spec));
    CHECK(front.run_until_finished(id));
    CHECK_EQ(front.thread().counters().n_cache_states.get(), 0U);
  }
  const RequestId other = front.submit(prompt_of(40, 9000), 3);
  CHECK(front.run_until_finished(other));
  CHECK_EQ(front.thread().counters().n_cache_states.get(), 1U);
}

TEST(idle_slots_give_up_their_cells_only_where_all_share_them) {
  for (const bool clear : {false, true}) {
    Script script;
    FrontEnd front(
        {.n_slots = 2,
         .keeper = {
             .cache_bytes_max = 1 << 20, .cache_idle_slots = true, .clear_idle_slots = clear}});
    front.start(factory_of(script));
    auto spec = std::make_unique<RequestSpec>();
    spec->prompt = prompt_of(40);
    spec->max_tokens = 3;
    spec->id_slot = 0;
    const RequestId first = front.submit(std::move(spec));
    CHECK(front.run_until_finished(first));
    CHECK_EQ(front.events(first).front().prompt.n_idle_saved, 0);
    spec = std::make_unique<RequestSpec>();
    spec->prompt = prompt_of(40, 5000);
    spec->max_tokens = 3;
    spec->id_slot = 1;
    const RequestId second = front.submit(std::move(spec));
    CHECK(front.run_until_finished(second));
    CHECK_EQ(front.events(second).front().prompt.n_idle_saved, 1);
    CHECK_EQ(front.thread().n_cells(0), clear ? 0 : 42);
    const RequestId again = front.submit(prompt_of(40), 3);
    CHECK(front.run_until_finished(again));
    CHECK_EQ(front.events(again).front().prompt.n_cached, 39);
  }
}

// --- actions ---------------------------------------------------------------------------------

TEST(actions_copy_restore_and_erase) {
  Script script;
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  const RequestId first = front.submit(prompt_of(40), 3);
  CHECK(front.run_until_finished(first));
  const std::int32_t slot = front.events(first).front().slot;
  SlotAction copy{.slot = slot};
  CHECK(front.submit(copy));
  CHECK(front.run_until([&] { return front.finished(copy.id); }));
  CHECK(copy.succeeded);
  CHECK_EQ(copy.n_tokens, 42);
  SlotAction restore{.kind = SlotActionKind::kRestore, .slot = 1 - slot};
  restore.state = std::move(copy.state);
  CHECK(front.submit(restore));
  CHECK(front.run_until([&] { return front.finished(restore.id); }));
  CHECK(restore.succeeded);
  CHECK_EQ(front.thread().n_cells(1 - slot), 42);
  SlotAction erase{.kind = SlotActionKind::kErase, .slot = slot};
  CHECK(front.submit(erase));
  CHECK(front.run_until([&] { return front.finished(erase.id); }));
  CHECK_EQ(erase.n_tokens, 42);
  CHECK_EQ(front.thread().n_cells(slot), 0);
  SlotAction broken{.kind = SlotActionKind::kRestore, .slot = 1 - slot};
  broken.state = state_of(prompt_of(600));  // more than the context
  CHECK(front.submit(broken));
  CHECK(front.run_until([&] { return front.finished(broken.id); }));
  CHECK(!broken.succeeded);
  CHECK_EQ(front.thread().n_cells(1 - slot), 0);
}

TEST(an_action_waits_for_its_slot_and_comes_before_who_waits_too) {
  Script script;
  script.gate.allow(0);
  FrontEnd front({.n_slots = 1});
  front.start(factory_of(script));
  const RequestId first = front.submit(prompt_of(20), 3);
  script.gate.wait_until_held();
  const RequestId second = front.submit(prompt_of(20), 3);
  SlotAction erase{.kind = SlotActionKind::kErase};
  CHECK(front.submit(erase));
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.finished(erase.id));
  CHECK_EQ(erase.n_tokens, 22);
  CHECK_EQ(front.events(second).front().prompt.n_cached, 0);
  const auto order = front.order_of(EventKind::kFinished);
  CHECK(order == std::vector<RequestId>({first, erase.id, second}));
}

TEST(a_request_that_waits_for_its_slot_holds_up_nobody) {
  Script script;
  script.gate.allow(0);
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  const auto wanting = [&](std::int32_t slot) {
    auto spec = std::make_unique<RequestSpec>();
    spec->prompt = prompt_of(20);
    spec->max_tokens = 3;
    spec->id_slot = slot;
    return front.submit(std::move(spec));
  };
  const RequestId first = wanting(0);
  script.gate.wait_until_held();
  const RequestId blocked = wanting(2);
  const RequestId free = front.submit(prompt_of(20, 3000), 3);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.order_of(EventKind::kStarted) == std::vector<RequestId>({first, free, blocked}));
  CHECK_EQ(front.events(blocked).front().slot, 0);
}

TEST(stop_ends_actions_that_wait) {
  Script script;
  script.gate.allow(0);
  FrontEnd front({.n_slots = 1, .n_actions_max = 2});
  front.start(factory_of(script));
  front.submit(prompt_of(20), -1);
  script.gate.wait_until_held();
  std::vector<SlotAction> actions(3);
  for (SlotAction& action : actions) CHECK(front.submit(action));
  script.gate.allow(2);
  script.gate.wait_until_held();
  CHECK(front.run_until([&] { return front.finished(actions[2].id); }));  // one too many
  CHECK(front.reason(actions[2].id) == FinishReason::kStopped);
  std::thread opener([&] {  // or the request could end before the stop
    // acquire, partner: the release store in stop().
    while (!front.thread().stop_flag().load(std::memory_order_acquire)) std::this_thread::yield();
    script.gate.allow(Gate::kOpen);
  });
  front.thread().stop();
  opener.join();
  front.drain();
  CHECK(front.reason(actions[0].id) == FinishReason::kStopped);
  CHECK(front.reason(actions[1].id) == FinishReason::kStopped);
}

// --- plans -----------------------------------------------------------------------------------

TEST(a_context_shift_keeps_and_drops_what_llama_server_does) {
  RequestSpec spec;
  spec.prompt = prompt_of(30);
  const auto plan = [&](bool bos) { return plan_context_shift(spec, 255, 256, bos); };
  CHECK_EQ(plan(false).n_keep, 0);
  CHECK_EQ(plan(false).n_discard, 127);
  CHECK_EQ(plan(true).n_keep, 1);
  spec.n_keep = -1;
  CHECK_EQ(plan(true).n_keep, 31);
  CHECK_EQ(plan(true).n_discard, 112);
  spec.n_discard = 10;
  CHECK_EQ(plan(true).n_discard, 10);
  spec.n_discard = 1 << 30;
  CHECK_EQ(plan(true).n_discard, 255 - 31 - 1);
  spec.n_keep = std::numeric_limits<std::int32_t>::max();
  CHECK_EQ(plan(true).n_keep, 252);
  CHECK_EQ(plan(true).n_discard, 2);
}

TEST(chunks_are_found_where_a_passage_was_left_out) {
  std::vector<TokenId> cells = prompt_of(100);
  std::vector<TokenId> prompt(cells.begin(), cells.begin() + 20);
  prompt.insert(prompt.end(), cells.begin() + 40, cells.begin() + 60);
  prompt.insert(prompt.end(), cells.begin() + 75, cells.end());
  prompt.push_back(1);
  std::vector<ReusableChunk> moves;
  std::vector<TokenId> moved = cells;
  unpaced::for_each_reusable_chunk(moved, prompt, 20, 0, 20,
                                   [&](const ReusableChunk& chunk) { moves.push_back(chunk); });
  REQUIRE(moves.size() == 2);
  CHECK_EQ(moves[0].from, 40);
  CHECK_EQ(moves[0].to, 20);
  CHECK_EQ(moves[0].n, 20);
  CHECK_EQ(moves[1].from, 75);
  CHECK_EQ(moves[1].to, 40);
  CHECK_EQ(moves[1].n, 25);
  CHECK(std::equal(prompt.begin(), prompt.end() - 1, moved.begin()));
  moves.clear();
  unpaced::for_each_reusable_chunk(cells, prompt, 20, 0, 26,
                                   [&](const ReusableChunk& chunk) { moves.push_back(chunk); });
  CHECK(moves.empty());
}

}  // namespace
}  // namespace slots_test
