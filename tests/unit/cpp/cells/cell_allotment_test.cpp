// Who gets KV cells where there are too few, as rules and in simulations of whole loads.
#include "cells/cell_allotment.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

namespace cell_allotment_test {
namespace {

using unpaced::allot_cells;
using unpaced::CellClaim;
using Kind = unpaced::CellClaim::Kind;

CellClaim decode(std::int32_t n_held) { return {.kind = Kind::kDecode, .n_held = n_held}; }
CellClaim prefill(std::int32_t n_missing, std::int32_t n_held = 0) {
  return {.kind = Kind::kPrefill, .n_held = n_held, .n_missing = n_missing};
}
CellClaim still(std::int32_t n_held) { return {.n_held = n_held}; }

struct Verdict {
  std::vector<bool> goes;
  std::vector<bool> yields;
};

// Of 100 cells, 10 prompt tokens a step.
Verdict allot(std::vector<CellClaim> claims) {
  allot_cells(claims, {.n_cells = 100, .n_chunk = 10, .n_beside = 10});
  Verdict verdict;
  for (const CellClaim& claim : claims) {
    verdict.goes.push_back(claim.goes);
    verdict.yields.push_back(claim.yields);
  }
  return verdict;
}

void expect(const std::vector<CellClaim>& claims, const std::vector<bool>& goes,
            const std::vector<bool>& yields) {
  const Verdict verdict = allot(claims);
  CHECK(verdict.goes == goes);
  CHECK(verdict.yields == yields);
}

TEST(where_there_are_enough_all_go) {
  expect({decode(20), prefill(30), decode(10), prefill(10, 5)}, {true, true, true, true},
         {false, false, false, false});
  expect({prefill(99)}, {true}, {false});
  expect({still(90), still(10)}, {false, false}, {false, false});
}

TEST(a_prompt_waits_until_it_fits_beside_what_others_hold) {
  expect({decode(50), prefill(60)}, {true, false}, {false, false});
  // With the cells that the other one takes meanwhile.
  expect({decode(50), prefill(46)}, {true, false}, {false, false});
  expect({decode(50), prefill(43)}, {true, true}, {false, false});
}

TEST(prompts_wait_for_one_another_in_the_order_of_their_arrival) {
  expect({prefill(60), prefill(60), prefill(5)}, {true, false, false}, {false, false, false});
  // Nor does a small one overtake: the large one would wait for ever.
  expect({decode(50), prefill(60), prefill(5)}, {true, false, false}, {false, false, false});
}

TEST(of_two_halves_the_older_one_goes_on_and_the_younger_begins_anew) {
  expect({prefill(40, 50), prefill(40, 50)}, {true, false}, {false, true});
  expect({prefill(60), prefill(10, 30), prefill(10, 20)}, {true, false, false},
         {false, false, true});
}

TEST(a_text_takes_the_cells_of_prompts_before_those_of_younger_texts) {
  expect({decode(50), decode(30), prefill(10, 20)}, {true, true, false}, {false, false, true});
  expect({decode(50), decode(50)}, {true, false}, {false, true});
  expect({decode(40), decode(30), decode(30)}, {true, true, false}, {false, false, true});
  // Who is the youngest itself waits, and keeps what it has until someone needs it.
  expect({decode(40), decode(59)}, {true, false}, {false, false});
}

TEST(who_cannot_yield_is_waited_for) {
  expect({decode(20), still(80)}, {false, false}, {false, false});
  expect({prefill(30), still(80)}, {false, false}, {false, false});
}

// --- loads -----------------------------------------------------------------------------------

struct Sequence {
  CellClaim claim;
  std::int32_t n_prompt = 0;
  std::int32_t n_left = 0;  // tokens to decode
};

// Runs sequences over `n_slots` slots to their ends; what must hold is checked in every step.
class Load {
 public:
  Load(std::uint32_t seed, std::int32_t n_slots, std::int32_t n_cells, std::int32_t n_chunk)
      : random_(seed), n_slots_(n_slots), n_cells_(n_cells), n_chunk_(n_chunk) {}

  void run(std::int32_t n_sequences) {
    std::int32_t n_started = 0;
    for (std::int32_t step = 0; n_ended_ < n_sequences; ++step) {
      REQUIRE(step < 200 * n_sequences * n_cells_);  // someone waits for ever
      while (n_started < n_sequences && std::ssize(active_) < n_slots_ && draw(0, 3) == 0) {
        start(n_started++);
      }
      this->step();
      if (!active_.empty() && draw(0, 400) == 0) {  // cancelled
        active_.erase(active_.begin() + draw(0, static_cast<std::int32_t>(active_.size()) - 1));
        ++n_ended_;
      }
    }
  }

 private:
  std::int32_t draw(std::int32_t from, std::int32_t to) {
    return std::uniform_int_distribution<std::int32_t>(from, to)(random_);
  }

  void start(std::int32_t number) {
    Sequence sequence;
    sequence.n_prompt = draw(1, n_cells_ - 1);
    sequence.n_left = draw(1, n_cells_ - sequence.n_prompt);
    sequence.claim = prefill(sequence.n_prompt);
    sequence.claim.id = static_cast<unpaced::RequestId>(number);
    // Part of it is there already, as much as is free.
    std::int32_t n_free = n_cells_;
    for (const Sequence& other : active_) n_free -= other.claim.n_held;
    sequence.claim.n_held = draw(0, std::min(n_free, sequence.n_prompt - 1));
    sequence.claim.n_missing -= sequence.claim.n_held;
    active_.push_back(sequence);
  }

  void step() {
    if (active_.empty()) return;
    std::vector<CellClaim> claims;
    std::int32_t n_held = 0;
    for (Sequence& sequence : active_) {
      sequence.claim.goes = sequence.claim.yields = false;
      claims.push_back(sequence.claim);
    }
    allot_cells(claims, {.n_cells = n_cells_, .n_chunk = n_chunk_, .n_beside = n_chunk_});
    std::int32_t n_room = n_chunk_;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      active_[i].claim = claims[i];
      take(active_[i], n_room);
      n_held += active_[i].claim.n_held;
    }
    CHECK(n_held <= n_cells_);
    CHECK(std::ranges::any_of(claims, &CellClaim::goes));  // somebody goes on, always
    CHECK(claims.front().goes);                            // the oldest one does
    n_ended_ += static_cast<std::int32_t>(
        std::erase_if(active_, [](const Sequence& s) { return s.n_left == 0; }));
  }

  static void take(Sequence& sequence, std::int32_t& n_room) {
    CellClaim& claim = sequence.claim;
    if (!claim.goes) return;
    if (claim.kind == Kind::kDecode) {
      ++claim.n_held;
      --sequence.n_left;
      return;
    }
    const std::int32_t n = std::min(claim.n_missing, n_room);
    n_room -= n;
    claim.n_held += n;
    claim.n_missing -= n;
    if (claim.n_missing > 0) return;
    claim.kind = Kind::kDecode;
    if (claim.n_held == sequence.n_prompt) --sequence.n_left;  // the prompt gives the first one
  }

  std::mt19937 random_;
  const std::int32_t n_slots_;
  const std::int32_t n_cells_;
  const std::int32_t n_chunk_;
  std::vector<Sequence> active_;  // the oldest first
  std::int32_t n_ended_ = 0;
};

TEST(every_sequence_of_every_load_comes_to_its_end) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Load(seed, 1 + static_cast<std::int32_t>(seed % 7), 64,
         1 + static_cast<std::int32_t>(seed % 16))
        .run(40);
  }
}

}  // namespace
}  // namespace cell_allotment_test
