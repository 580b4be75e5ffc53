// Who of those that share the KV cells computes in a step, where there are too few for all of them.
#pragma once

#include <cstdint>
#include <span>

#include "cells/prefix_index.h"
#include "request/records.h"

namespace unpaced {

// Of a slot that is active, or whose state a slot action moves, in one step.
struct CellClaim {
  enum class Kind : std::uint8_t {
    kStill,   // keeps its cells and takes none: it waits for its state or its grammar, or is moved
    kDecode,  // takes one
    kPrefill  // takes the cells of tokens that are known, and can compute them anew
  };

  RequestId id = 0;  // who came first has the smaller one; 0: none
  std::int32_t slot = 0;
  std::int32_t sequence = 0;  // where sequences have cells in common
  Kind kind = Kind::kStill;
  std::int32_t n_held = 0;     // cells
  std::int32_t n_missing = 0;  // kPrefill: tokens that have none yet

  // What allot_cells() says.
  bool goes = false;  // it computes in this step
  // First it gives up its cells but the first n_held, which others keep that have them too, and
  // computes them anew later.
  bool yields = false;
};

struct CellSupply {
  std::int32_t n_cells = 0;
  // Tokens of prompts that one step computes, and that it computes beside slots that decode.
  std::int32_t n_chunk = 0;
  std::int32_t n_beside = 0;
};

// `claims`: of all such slots, the oldest first; at least one cell more than any of them needs is
// in the supply.
//
// A decoding slot that finds no cell gets those of the youngest slot that prefills, else of the
// youngest that decodes and is younger than itself; else it waits. A prompt begins when all of it
// fits beside what the others hold, and beside what decoding slots will take meanwhile: the oldest
// first, so that it waits for no prompt behind it, and those get no cell before. Younger ones that
// have not got so far give it theirs.
//
// The oldest slot always goes, unless those that are kStill hold the cells; since slots yield to
// nobody who came later but decoding ones, which end, everyone gets there.
//
// `index`: which cells the slots' sequences have in common, each of which counts once; null: none.
void allot_cells(std::span<CellClaim> claims, const CellSupply& supply,
                 const PrefixIndex* index = nullptr) noexcept;

}  // namespace unpaced
