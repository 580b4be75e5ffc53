#include "slots/cell_allotment.h"

#include <algorithm>
#include <ranges>

namespace unpaced {
namespace {

using Kind = CellClaim::Kind;

// The youngest of this kind that holds cells; null: none does.
CellClaim* youngest(std::span<CellClaim> claims, Kind kind) noexcept {
  const auto found = std::find_if(claims.rbegin(), claims.rend(), [kind](const CellClaim& claim) {
    return claim.kind == kind && claim.n_held > 0;
  });
  return found == claims.rend() ? nullptr : &*found;
}

// Returns the cells that become free. From now on the slot prefills.
std::int32_t yield(CellClaim& claim) noexcept {
  const std::int32_t n = claim.n_held;
  claim.kind = Kind::kPrefill;
  claim.n_missing += n;
  claim.n_held = 0;
  claim.yields = true;
  return n;
}

// Returns the cells that are left.
std::int32_t allot_decodes(std::span<CellClaim> claims, std::int32_t n_free) noexcept {
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (claims[i].kind != Kind::kDecode) continue;
    while (n_free <= 0) {
      CellClaim* giver = youngest(claims, Kind::kPrefill);
      if (giver == nullptr) giver = youngest(claims.subspan(i + 1), Kind::kDecode);
      if (giver == nullptr) break;
      n_free += yield(*giver);
    }
    claims[i].goes = n_free > 0;
    if (claims[i].goes) --n_free;
  }
  return n_free;
}

}  // namespace

void allot_cells(std::span<CellClaim> claims, std::int32_t n_cells, std::int32_t n_chunk) noexcept {
  std::int32_t n_free = n_cells;
  for (const CellClaim& claim : claims) n_free -= claim.n_held;
  n_free = allot_decodes(claims, n_free);
  // What takes a cell in every step until the prompt has been computed.
  auto n_growing = static_cast<std::int32_t>(
      std::ranges::count_if(claims, [](const CellClaim& c) { return c.kind == Kind::kDecode; }));
  std::int32_t n_ahead = 0;  // tokens to compute, its own with them
  for (std::size_t i = 0; i < claims.size(); ++i) {
    CellClaim& claim = claims[i];
    if (claim.kind != Kind::kPrefill) continue;
    n_ahead += claim.n_missing;
    const std::int32_t n_step = std::max(1, n_chunk - n_growing);
    const std::int32_t n_steps = (n_ahead + n_step - 1) / n_step;
    while (n_free < claim.n_missing + 1 + n_steps * n_growing) {
      CellClaim* giver = youngest(claims.subspan(i + 1), Kind::kPrefill);
      if (giver == nullptr) return;  // it waits, and those behind it do
      n_free += yield(*giver);
    }
    claim.goes = true;
    n_free -= claim.n_missing + 1;
    ++n_growing;
  }
}

}  // namespace unpaced
