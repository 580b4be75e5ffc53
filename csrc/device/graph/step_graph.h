// A step's graph as a list of tensors: who reads whom, and where in memory they lie.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace unpaced {

// Nodes of a graph that follow one another in the order in which they are computed, `end` excluded.
struct NodeRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  bool operator==(const NodeRange&) const = default;
};

class StepGraph {
 public:
  // The graph's nodes in the order in which they are computed. They outlive this.
  explicit StepGraph(std::vector<const ggml_tensor*> nodes);
  // Each of several rows is to have the bits of ggml's kernels for one, not for so many.
  void have_rows_as_alone() noexcept { rows_as_alone_ = true; }
  [[nodiscard]] bool has_rows_as_alone() const noexcept { return rows_as_alone_; }

  [[nodiscard]] std::int32_t size() const noexcept {
    return static_cast<std::int32_t>(nodes_.size());
  }
  [[nodiscard]] const ggml_tensor* node(std::int32_t i) const {
    return nodes_[static_cast<std::size_t>(i)];
  }
  // -1: not a node (a weight, an input, the cache).
  [[nodiscard]] std::int32_t index_of(const ggml_tensor* tensor) const;
  // The nodes that have the tensor as a source, each as often as it has it.
  [[nodiscard]] std::span<const std::int32_t> readers(const ggml_tensor* tensor) const;
  // The nodes that read the tensor's values, through views of it or not; views are none.
  [[nodiscard]] std::vector<std::int32_t> computing_readers(const ggml_tensor* tensor) const;
  // The first node from i on that computes anything; size() if there is none.
  [[nodiscard]] std::int32_t next_computing(std::int32_t i) const;
  // The first node that computes anything, if its operation is this one; nullptr if not.
  [[nodiscard]] const ggml_tensor* next_if(std::int32_t i, ggml_op op) const;
  // Somebody outside the range reads the values that the tensor has at the range's end, or the
  // graph's owner does.
  [[nodiscard]] bool is_read_outside(const ggml_tensor* tensor, const NodeRange& range) const;

 private:
  std::vector<const ggml_tensor*> nodes_;
  bool rows_as_alone_ = false;
  std::unordered_map<const ggml_tensor*, std::int32_t> index_;
  std::unordered_map<const ggml_tensor*, std::vector<std::int32_t>> readers_;
};

// It computes nothing: another shape of what is there already.
[[nodiscard]] bool is_view(const ggml_tensor* tensor) noexcept;

// The tensor whose memory this is a view of; itself, if of none. Operations within another tensor's
// memory (a row written to the cache) are not followed.
[[nodiscard]] const ggml_tensor* origin(const ggml_tensor* tensor) noexcept;

// A matrix or vector of the model, which no step changes.
[[nodiscard]] bool is_weight(const ggml_tensor* tensor) noexcept;

[[nodiscard]] bool is_contiguous_f32(const ggml_tensor* tensor) noexcept;

// Bytes of both are the same memory.
[[nodiscard]] bool overlap(const ggml_tensor* a, const ggml_tensor* b) noexcept;

}  // namespace unpaced
