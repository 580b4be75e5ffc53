// Which slots the GPU's loop decodes together, and when they go on after a pause.
#include "device/stepper/loop_members.h"

#include <vector>

#include "check.h"

namespace loop_members_test {
namespace {

using unpaced::find_decoding;
using unpaced::find_members;
using unpaced::LaneOutcome;
using unpaced::may_resume;
using unpaced::Slot;
using unpaced::SlotMove;
using unpaced::SlotPhase;

constexpr std::size_t kLanes = 3;

std::vector<Slot> slots_in(const std::vector<SlotPhase>& phases) {
  std::vector<Slot> slots(phases.size());
  for (std::size_t i = 0; i < phases.size(); ++i) {
    slots[i].id = static_cast<std::int32_t>(i);
    slots[i].phase = phases[i];
  }
  return slots;
}

std::vector<std::int32_t> members_of(std::vector<Slot> slots, bool decoding_alone = false) {
  std::vector<Slot*> members;
  members.reserve(kLanes);
  const auto* room = members.data();
  decoding_alone ? find_decoding(slots, kLanes, members) : find_members(slots, kLanes, members);
  CHECK(members.data() == room);  // nothing is allocated
  std::vector<std::int32_t> ids;
  for (const Slot* slot : members) ids.push_back(slot->id);
  return ids;
}

using Ids = std::vector<std::int32_t>;

TEST(all_that_decode_are_members_in_their_order) {
  const auto idle = SlotPhase::kIdle;
  const auto decodes = SlotPhase::kDecode;
  CHECK(members_of(slots_in({idle, decodes, idle, idle})) == Ids({1}));
  CHECK(members_of(slots_in({decodes, idle, decodes, decodes})) == Ids({0, 2, 3}));
  CHECK(members_of(slots_in({idle, idle})).empty());
}

TEST(more_than_there_are_lanes_are_the_hosts) {
  CHECK(members_of(slots_in(std::vector(kLanes, SlotPhase::kDecode))).size() == kLanes);
  CHECK(members_of(slots_in(std::vector(kLanes + 1, SlotPhase::kDecode))).empty());
}

TEST(who_decodes_may_be_found_whatever_the_others_do) {
  const auto decodes = SlotPhase::kDecode;
  for (const SlotPhase other : {SlotPhase::kSeating, SlotPhase::kPrefill, SlotPhase::kRecompute}) {
    CHECK(members_of(slots_in({decodes, other, decodes}), true) == Ids({0, 2}));
    CHECK(members_of(slots_in({other}), true).empty());
  }
  CHECK(members_of(slots_in(std::vector(kLanes + 1, decodes)), true).empty());
  std::vector<Slot> slots = slots_in({decodes, SlotPhase::kIdle});
  slots.back().move = SlotMove::kIn;
  CHECK(members_of(slots, true).empty());
}

TEST(whoever_does_something_else_makes_it_the_hosts_turn) {
  for (const SlotPhase other : {SlotPhase::kSeating, SlotPhase::kPrefill, SlotPhase::kRecompute}) {
    CHECK(members_of(slots_in({SlotPhase::kDecode, other})).empty());
    CHECK(members_of(slots_in({other, SlotPhase::kDecode})).empty());
  }
}

TEST(what_is_restored_would_take_planned_cells) {
  std::vector<Slot> slots = slots_in({SlotPhase::kDecode, SlotPhase::kIdle});
  slots[1].move = SlotMove::kIn;
  CHECK(members_of(slots).empty());
  slots[1].move = SlotMove::kOut;
  CHECK(members_of(slots) == Ids({0}));
}

TEST(they_go_on_where_somebody_paused_and_nobody_ended) {
  const LaneOutcome goes_on{.has_ended = false, .has_steps_left = true};
  const LaneOutcome ended{.has_ended = true, .has_steps_left = true};
  const LaneOutcome is_through{.has_ended = false, .has_steps_left = false};
  CHECK(may_resume(true, std::vector{goes_on, goes_on}));
  CHECK(!may_resume(false, std::vector{goes_on, goes_on}));
  CHECK(!may_resume(true, std::vector{goes_on, ended}));
  CHECK(!may_resume(true, std::vector{is_through, goes_on}));
}

}  // namespace
}  // namespace loop_members_test
