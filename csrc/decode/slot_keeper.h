// What happens to the slots' contents between requests: states go to host memory and come back, and
// the front end copies, restores and erases them. Decode thread only, between steps.
//
// Where the stepper has a CellStore nobody waits for a copy that only serves later: what a slot
// held is parked and copied in parts, a turn of them between two steps. What a prompt reuses comes
// back in the same way, while the other slots decode. Slot actions take their turns, too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/counters.h"
#include "decode/prefix_source.h"
#include "decode/state_mover.h"
#include "decode/stepper.h"
#include "kept/early_copies.h"
#include "kept/part_pool.h"
#include "kept/part_size.h"
#include "kept/prompt_cache.h"
#include "kept/restore_choice.h"
#include "slots/slot.h"
#include "slots/slot_action.h"
#include "slots/slot_choice.h"
#include "slots/takeover.h"

namespace unpaced {

struct SlotKeeperOptions {
  std::int64_t cache_bytes_max = 0;  // -1: no limit, 0: no prompt cache
  bool cache_idle_slots = false;     // idle slots are copied there when another slot gets to work
  bool clear_idle_slots = false;     // and give up their cells: they share one KV
  // Streams feel a turn as a longer gap between two tokens. One that somebody waits for, a request
  // or who asked for a slot action, may be twice as long. 0: a turn is a part.
  std::int64_t turn_us = 1500;
  // What is kept comes back by copy even where computing it is quicker.
  bool always_copies = false;
};

class SlotKeeper {
 public:
  SlotKeeper(const SlotKeeperOptions& options, std::int32_t n_slots, Counters& counters);

  // Before choice.slot, which is kSeating, begins on `spec`. The stepper has settled, and works
  // ahead of no slot until the request begins.
  void make_way(Stepper& stepper, std::span<Slot> slots, const SlotChoice& choice,
                const RequestSpec& spec);
  // Requests wait for cells that others hold or compute.
  [[nodiscard]] bool awaits_prefixes() const noexcept;
  // Those that are there are shared, before somebody else gets their slots.
  void share_prefixes(Stepper& stepper, std::span<Slot> slots);
  // The first one whose request can begin now; the keeper is done with it then.
  struct Ready {
    Slot* slot;
    Takeover takeover;
  };
  [[nodiscard]] std::optional<Ready> next_ready() noexcept;

  [[nodiscard]] bool has_work() const noexcept;
  // One turn: parts are copied and restored for as long as two steps may be apart.
  void work(Stepper& stepper, std::span<Slot> slots);
  // Nothing runs and nobody waits; the stepper has settled. Copies a part of what an idle slot
  // holds, for when another request takes its place. False: there is nothing to copy.
  bool copy_early(Stepper& stepper, std::span<const Slot> slots);
  // A step follows, or the next turn.
  void end_turn() noexcept;
  // Something went wrong: copies under way are dropped.
  void give_up(Stepper& stepper) noexcept;

  // The action's slot is free, the stepper has settled. False: it takes turns; see next_done().
  [[nodiscard]] bool act(Stepper& stepper, Slot& slot, SlotAction& action);
  // An action that took turns and is over, or given up; null: there is none.
  [[nodiscard]] SlotAction* next_done() noexcept { return mover_.next_done(); }
  // All that are under way end without success; what their slots hold is in doubt.
  void give_up_actions() noexcept { mover_.give_up(); }

 private:
  // A request that waits in its slot for what it reuses.
  struct Seating {
    Slot* slot = nullptr;
    RequestId id = 0;
    Takeover takeover;
    PrefixSource source;  // a slot with which it shares cells as soon as those are there
    std::int32_t lender = CellStore::kNoTicket;  // has parked what the slot is to share
    std::optional<KeptState> state;              // what comes back
    bool is_lent = false;                        // a part of it: the cache has it again afterwards
    std::size_t n_restored = 0;                  // parts of it
    std::int32_t n_restored_cells = 0;           // that they have
    std::int32_t n_wanted = 0;                   // tokens of it
    std::int32_t n_held = 0;                     // that the request would not compute without it
    bool is_tried = false;                       // a part of it is copied to see what that takes
    std::int32_t n_freed = 0;                    // cells that it waited for without need of them
    bool is_ready = false;
  };

  // What another request left in the slot is kept, and what of it the new one reuses is there
  // again.
  void take_over(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                 const RequestSpec& spec);
  // False: it was not worth it, or there is no memory for it; the slot is as before. Where there is
  // a CellStore, what is kept is in no slot any more.
  bool keep(Stepper& stepper, Slot& slot);
  // For so many bytes more, of copies ahead of time and of kept states, the oldest ones go.
  void make_room(std::size_t n_early, std::size_t n_kept) noexcept;
  // Of all idle slots but `taken` and the one that it shares with; returns their number.
  std::int32_t keep_idle(Stepper& stepper, std::span<Slot> slots, const Seating& seating);
  // slot_keeper_restores.cpp. The kept state that serves the request better than `held`, which its
  // slot held, takes the place of that, or its beginning does; where it has a source, of those that
  // are parked alone. False: there is none, or computing is quicker.
  bool look_for_better(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                       const RequestSpec& spec, std::span<const TokenId> held,
                       const PrefixSource& source);
  // The first n_held tokens of the prompt are there without the state.
  [[nodiscard]] bool chooses_copy(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                                  const KeptState& state, std::int32_t n_held) noexcept;
  [[nodiscard]] RestoreOffer offer_of(Stepper& stepper, std::span<const Slot> slots,
                                      const Seating& seating,
                                      const KeptState& state) const noexcept;
  // False: by what its parts took the rest is computed, and the state is in the cache again.
  [[nodiscard]] bool goes_on(Stepper& stepper, std::span<const Slot> slots, Seating& seating);
  [[nodiscard]] bool restore_part(CellStore& store, Slot& slot, std::span<const TokenId> tokens,
                                  const StatePart& part);
  // So many cells came back in so long.
  void learn(std::int32_t n_cells, std::int64_t us) noexcept;
  // The slot has all of the state that the request reuses, or will not get more.
  void end_restore(CellStore* store, Seating& seating) noexcept;
  // slot_keeper_prefixes.cpp. Of the slot's first cells, those that the request will keep.
  [[nodiscard]] static std::int32_t n_reused(const Slot& slot, const RequestSpec& spec) noexcept;
  // Who holds enough more of the request's prompt in cells than n_own tokens, or will.
  void find_source(const CellStore& store, std::span<const Slot> slots, Seating& seating,
                   const RequestSpec& spec, std::int32_t n_own);
  // The slots, and the prompts that they hold or are about to hold.
  void collect_slots(std::span<const Slot> slots, const Seating& seating, const RequestSpec& spec);
  // The slot, which is to share the source's cells, gives up its own.
  void use_source(Stepper& stepper, Seating& seating);
  // It holds what is to be shared, now or later.
  [[nodiscard]] static bool is_there(const PrefixSource& source) noexcept;
  // The slot's cells become those that it is to share. False: it waits for them.
  bool share_next(Stepper& stepper, CellStore& store, std::span<const Slot> slots,
                  Seating& seating);

  // Where states cannot be cut.
  void restore_whole(Stepper& stepper, Seating& seating);

  // slot_keeper_turns.cpp. These return false where there was nothing to do.
  bool advance(Stepper& stepper, CellStore& store, std::span<const Slot> slots, Seating& seating);
  bool restore_next(Stepper& stepper, CellStore& store, std::span<const Slot> slots,
                    Seating& seating);
  // The slot's cells become those that the request reuses, as far as that is bookkeeping alone.
  bool enter(CellStore& store, Seating& seating);
  bool copy_next(CellStore& store);
  // Cells of the next part of `state`.
  [[nodiscard]] std::int32_t n_next(const KeptState& state) const noexcept;
  // Whether there is memory for that. Else a piece of it was made now.
  [[nodiscard]] bool is_prepared(const CellStore& store, const KeptState& state) noexcept;
  // The next part of `state`; false: it has to be given up.
  bool copy_part(CellStore& store, KeptState& state);
  // Cells that were copied before they were displaced become free, for the request to compute in
  // lower ones. False: there are none.
  bool free_copied(CellStore& store, Seating& seating) noexcept;
  // Whether the request's cells are free, or never will be.
  [[nodiscard]] bool has_room(const CellStore& store, std::span<const Slot> slots,
                              const Seating& seating) noexcept;
  // A part of that many cells finds as many that are free.
  [[nodiscard]] static bool fits(const CellStore& store, std::span<const Slot> slots,
                                 std::int32_t n) noexcept;
  // As a whole, at once.
  void act_at_once(Stepper& stepper, Slot& slot, SlotAction& action);
  // A part of a slot action; false: there was nothing to do.
  bool move_next(Stepper& stepper, CellStore& store);
  // The turn has lasted since `begin_us`.
  void spend(CellStore* store, std::int64_t begin_us) noexcept;
  // Requests that ended before they began.
  void drop_stale(Stepper& stepper);
  // Copies whose cells were needed.
  void drop_lost(CellStore& store) noexcept;
  // False: there is none.
  bool drop_unfinished(CellStore& store) noexcept;
  void dispose(CellStore* store, KeptState& state) noexcept;
  // What was taken from the cache goes, or is there again.
  void release(CellStore* store, KeptState& state) noexcept;
  void put_back(CellStore* store, KeptState& state) noexcept;
  void dispose_dropped(CellStore* store) noexcept;
  void count() noexcept;

  const SlotKeeperOptions options_;
  Counters& counters_;
  PromptCache cache_;
  PartPool pool_;
  std::vector<Seating> seatings_;             // in the order of their arrival
  std::vector<PrefixIndex::Holder> holders_;  // scratch: who may hold a prefix, and
  std::vector<PrefixSource> holder_sources_;  // where
  PartSize part_size_;
  RestoreChoice choice_;
  EarlyCopies early_;
  StateMover mover_;
  bool is_swept_ = true;      // the store has no cells left that are nobody's
  std::int64_t turn_us_ = 0;  // spent since the last step
  // Of that, what the step before took that copies waited for; see CellStore::take_waited_us().
  std::int64_t waited_us_ = 0;
};

}  // namespace unpaced
