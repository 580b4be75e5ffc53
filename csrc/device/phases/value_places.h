// Where the values of a step's phases lie: those that nobody outside a phase reads in scratch
// memory, the others where the graph has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "device/graph/step_phase.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/mat_mat.h"
#include "device/kernels/q8_row.h"

namespace unpaced {

class ValuePlaces {
 public:
  // The graph's tensors outlive this. Addresses within the scratch memory begin at nullptr until
  // begin_at(). takes_records: whether a product reads records of its input; none does without.
  // product_bytes: what products of many columns keep (mat_mat_sum_bytes()).
  using TakesRecords = std::function<bool(const ProductPart&)>;
  ValuePlaces(const StepGraph& graph, std::span<const StepPhase> phases,
              const TakesRecords& takes_records = {}, std::size_t product_bytes = 0);

  // The scratch memory that the places take; at least kArrivalBytes.
  [[nodiscard]] std::size_t n_bytes() const noexcept { return n_bytes_; }
  void begin_at(std::byte* scratch) noexcept { scratch_ = scratch; }

  // Of a tensor or a view of one.
  [[nodiscard]] float* floats(const ggml_tensor* value) const;
  // Of the rounded form of its rows, until the last phase that reads them.
  [[nodiscard]] Q8Block* rounded(const ggml_tensor* value) const;
  // Of the same rows for tensor cores; nowhere: nobody reads them so, or they are few, or too long.
  [[nodiscard]] RecordRows records(const ggml_tensor* value) const;
  // Where the parts of an attention meet.
  [[nodiscard]] std::byte* parts(const ggml_tensor* attention) const;
  // What products of many columns keep, each after the other.
  [[nodiscard]] MatMatMemory product_memory() const {
    return {scratch_ + sums_, reinterpret_cast<std::uint32_t*>(scratch_ + kAttentionArrivalBytes)};
  }
  // Counters for all attentions, and products, in the scratch memory's first kArrivalBytes
  // whichever phases there are. They are zero before the first launch, which is for the memory's
  // owner to see to.
  [[nodiscard]] std::uint32_t* arrivals() const {
    return reinterpret_cast<std::uint32_t*>(scratch_);
  }
  static constexpr std::size_t kAttentionArrivalBytes =
      kAttentionHeadsMost * sizeof(std::uint32_t) * kRowsAsAlone;
  static constexpr std::size_t kArrivalBytes =
      kAttentionArrivalBytes + kMatMatArrivals * sizeof(std::uint32_t);

 private:
  // Tensors that are read as records, and whether these are batch records.
  using Recorded = std::map<const ggml_tensor*, bool>;

  void place_rounded(std::span<const StepPhase> phases, const Recorded& recorded);
  void add_phase(const StepGraph& graph, const StepPhase& phase);
  void add_floats(const StepGraph& graph, const NodeRange& nodes, const ggml_tensor* value);
  [[nodiscard]] std::size_t take(std::size_t n_bytes);

  std::map<const ggml_tensor*, std::size_t> floats_;  // offsets in the scratch memory
  std::map<const ggml_tensor*, std::size_t> rounded_;
  struct RecordPlace {
    std::size_t at;
    std::int32_t n_eights;
  };
  std::map<const ggml_tensor*, RecordPlace> records_;
  std::map<const ggml_tensor*, std::size_t> parts_;
  std::size_t sums_ = 0;
  std::size_t next_ = 0;
  std::size_t n_bytes_ = 0;
  std::byte* scratch_ = nullptr;
};

}  // namespace unpaced
