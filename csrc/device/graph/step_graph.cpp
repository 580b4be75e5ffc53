#include "device/graph/step_graph.h"

#include <algorithm>
#include <utility>

namespace unpaced {

StepGraph::StepGraph(std::vector<const ggml_tensor*> nodes) : nodes_(std::move(nodes)) {
  for (std::int32_t i = 0; i < size(); ++i) index_.emplace(node(i), i);
  for (std::int32_t i = 0; i < size(); ++i) {
    for (const ggml_tensor* source : node(i)->src) {
      if (source != nullptr) readers_[source].push_back(i);
    }
  }
}

std::int32_t StepGraph::index_of(const ggml_tensor* tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? -1 : found->second;
}

std::span<const std::int32_t> StepGraph::readers(const ggml_tensor* tensor) const {
  const auto found = readers_.find(tensor);
  if (found == readers_.end()) return {};
  return found->second;
}

std::vector<std::int32_t> StepGraph::computing_readers(const ggml_tensor* tensor) const {
  std::vector<std::int32_t> found;
  for (const std::int32_t reader : readers(tensor)) {
    if (is_view(node(reader))) {
      const std::vector<std::int32_t> further = computing_readers(node(reader));
      found.insert(found.end(), further.begin(), further.end());
    } else {
      found.push_back(reader);
    }
  }
  return found;
}

std::int32_t StepGraph::next_computing(std::int32_t i) const {
  while (i < size() && is_view(node(i))) ++i;
  return i;
}

const ggml_tensor* StepGraph::next_if(std::int32_t i, ggml_op op) const {
  const std::int32_t next = next_computing(i);
  return next < size() && node(next)->op == op ? node(next) : nullptr;
}

bool StepGraph::is_read_outside(const ggml_tensor* tensor, const NodeRange& range) const {
  if ((tensor->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) return true;
  const std::span<const std::int32_t> all = readers(tensor);
  return all.empty() || std::ranges::any_of(all, [&](std::int32_t reader) {
           const bool outside = reader < range.begin || reader >= range.end;
           // A view's own readers count, wherever the view stands.
           return is_view(node(reader)) ? is_read_outside(node(reader), range) : outside;
         });
}

bool is_view(const ggml_tensor* tensor) noexcept {
  return tensor->op == GGML_OP_NONE || tensor->op == GGML_OP_RESHAPE ||
         tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_PERMUTE ||
         tensor->op == GGML_OP_TRANSPOSE;
}

const ggml_tensor* origin(const ggml_tensor* tensor) noexcept {
  while (tensor->view_src != nullptr && is_view(tensor)) tensor = tensor->view_src;
  return tensor;
}

bool is_weight(const ggml_tensor* tensor) noexcept {
  return tensor->op == GGML_OP_NONE && (tensor->flags & GGML_TENSOR_FLAG_INPUT) == 0 &&
         tensor->view_src == nullptr;
}

bool is_contiguous_f32(const ggml_tensor* tensor) noexcept {
  return tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor);
}

bool overlap(const ggml_tensor* a, const ggml_tensor* b) noexcept {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a->data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b->data);
  return begin_a < begin_b + ggml_nbytes(b) && begin_b < begin_a + ggml_nbytes(a);
}

}  // namespace unpaced
