#include "cells/cell_allotment.h"

#include <algorithm>

namespace unpaced {
namespace {

using Kind = CellClaim::Kind;

// The claims of one step, and the cells that are left.
class Allotment {
 public:
  Allotment(std::span<CellClaim> claims, std::int32_t n_cells, const PrefixIndex* index) noexcept
      : claims_(claims),
        index_(index != nullptr && index->is_shared() ? index : nullptr),
        n_free_(n_cells - n_held()) {}

  [[nodiscard]] std::int32_t n_free() const noexcept { return n_free_; }
  void take(std::int32_t n) noexcept { n_free_ -= n; }

  // The youngest of this kind among claims `first` and later that can yield; null: there is none.
  [[nodiscard]] CellClaim* youngest(std::size_t first, Kind kind) const noexcept {
    const auto later = claims_.subspan(first);
    const auto found = std::find_if(later.rbegin(), later.rend(), [kind](const CellClaim& claim) {
      return claim.kind == kind && claim.n_held > 0 && !claim.yields;
    });
    return found == later.rend() ? nullptr : &*found;
  }

  // From now on the slot prefills.
  void yield(CellClaim& giver) noexcept {
    const std::int32_t n_before = n_held();
    // A token that is to be drawn again needs one computed.
    if (giver.kind == Kind::kDecode) keep(giver, giver.n_held - 1);
    giver.kind = Kind::kPrefill;
    giver.yields = true;
    // What those who yield have in common is nobody's, unless somebody stays who has it too.
    for (CellClaim& claim : claims_) {
      if (claim.yields) keep(claim, n_kept_by_others(claim));
    }
    n_free_ += n_before - n_held();
  }

 private:
  static void keep(CellClaim& claim, std::int32_t n) noexcept {
    if (n >= claim.n_held) return;
    claim.n_missing += claim.n_held - n;
    claim.n_held = n;
  }

  [[nodiscard]] std::int32_t n_both(const CellClaim& a, const CellClaim& b) const noexcept {
    if (index_ == nullptr) return 0;
    return std::min(index_->n_common(a.sequence, b.sequence), b.n_held);
  }

  [[nodiscard]] std::int32_t n_kept_by_others(const CellClaim& claim) const noexcept {
    std::int32_t n = 0;
    for (const CellClaim& other : claims_) {
      if (!other.yields) n = std::max(n, n_both(claim, other));
    }
    return n;
  }

  // Of all claims, each cell counted once.
  [[nodiscard]] std::int32_t n_held() const noexcept {
    std::int32_t n = 0;
    for (std::size_t i = 0; i < claims_.size(); ++i) {
      std::int32_t n_known = 0;
      for (std::size_t j = 0; index_ != nullptr && j < i; ++j) {
        n_known = std::max(n_known, n_both(claims_[i], claims_[j]));
      }
      n += std::max(0, claims_[i].n_held - n_known);
    }
    return n;
  }

  std::span<CellClaim> claims_;
  const PrefixIndex* const index_;
  std::int32_t n_free_;
};

void allot_decodes(std::span<CellClaim> claims, Allotment& cells) noexcept {
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (claims[i].kind != Kind::kDecode) continue;
    while (cells.n_free() <= 0) {
      CellClaim* giver = cells.youngest(0, Kind::kPrefill);
      if (giver == nullptr) giver = cells.youngest(i + 1, Kind::kDecode);
      if (giver == nullptr) break;
      cells.yield(*giver);
    }
    claims[i].goes = cells.n_free() > 0;
    if (claims[i].goes) cells.take(1);
  }
}

}  // namespace

void allot_cells(std::span<CellClaim> claims, const CellSupply& supply,
                 const PrefixIndex* index) noexcept {
  Allotment cells(claims, supply.n_cells, index);
  allot_decodes(claims, cells);
  // What takes a cell in every step until the prompt has been computed.
  auto n_growing = static_cast<std::int32_t>(
      std::ranges::count_if(claims, [](const CellClaim& c) { return c.kind == Kind::kDecode; }));
  std::int32_t n_ahead = 0;  // tokens to compute, its own with them
  for (std::size_t i = 0; i < claims.size(); ++i) {
    CellClaim& claim = claims[i];
    if (claim.kind != Kind::kPrefill) continue;
    n_ahead += claim.n_missing;
    const std::int32_t n_step = std::max(1, std::min(supply.n_beside, supply.n_chunk - n_growing));
    const std::int32_t n_steps = (n_ahead + n_step - 1) / n_step;
    while (cells.n_free() < claim.n_missing + 1 + n_steps * n_growing) {
      CellClaim* giver = cells.youngest(i + 1, Kind::kPrefill);
      if (giver == nullptr) return;  // it waits, and those behind it do
      cells.yield(*giver);
    }
    claim.goes = true;
    cells.take(claim.n_missing + 1);
    ++n_growing;
  }
}

}  // namespace unpaced
