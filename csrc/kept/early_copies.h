// Copies of what idle slots hold, made while nobody computes: who displaces it later waits for
// none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kept/kept_state.h"
#include "kept/part_pool.h"
#include "kept/part_size.h"
#include "slots/slot.h"

namespace unpaced {

// Decode thread only. A slot's copy is of its first cells, and stays of use while the slot goes on
// from them.
class EarlyCopies {
 public:
  // `pool` and `part_size` outlive this.
  EarlyCopies(std::int32_t n_slots, PartPool& pool, PartSize& part_size);

  [[nodiscard]] std::size_t n_bytes() const noexcept { return n_bytes_; }
  [[nodiscard]] bool is_whole(const Slot& slot) const noexcept;
  // Bytes that the whole copy takes beyond those that are there already.
  [[nodiscard]] std::size_t n_missing_bytes(const CellStore& store,
                                            const Slot& slot) const noexcept;
  // One part more, of a slot that holds more cells than are copied. False: it failed.
  bool copy_next(CellStore& store, const Slot& slot);
  // What is there of the cells that the slot holds becomes the state's.
  void hand_over(const Slot& slot, KeptState& state) noexcept;
  // The memory of one slot's copy is for others. False: there is none.
  bool drop_one() noexcept;

 private:
  struct Copy {
    std::vector<TokenId> tokens;  // of the cells that the parts have
    std::vector<float> lora_scales;
    CacheDomain cache_domain = 0;
    std::vector<StatePart> parts;
  };
  // Cells of the slot that are in whole parts.
  [[nodiscard]] static std::int32_t n_of_use(const Copy& copy, const Slot& slot) noexcept;
  // Without the parts beyond the first n cells.
  void cut(Copy& copy, std::int32_t n) noexcept;

  std::vector<Copy> copies_;  // by slot
  PartPool& pool_;
  PartSize& part_size_;
  std::size_t n_bytes_ = 0;
};

}  // namespace unpaced
