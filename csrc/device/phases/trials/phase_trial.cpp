#include "device/phases/trials/phase_trial.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "device/kernels/rows/batch_records.h"
#include "device/kernels/rows/row_rounding.h"
#include "device/state/cuda_memory.h"
#include "device/state/stream_wait.h"

namespace unpaced {
namespace {

constexpr std::uint64_t kSeed = 0x9e3779b97f4a7c15;
constexpr std::int32_t kPosition = 77;

struct Span {
  std::byte* data;
  std::size_t size;
};

// Of rows written to the cache: the rows, which are the first ones.
Span written(const ggml_tensor* node) {
  auto* data = static_cast<std::byte*>(node->data);
  if (node->op == GGML_OP_SET_ROWS)
    return {data, node->nb[1] * static_cast<std::size_t>(ggml_nelements(node->src[1]))};
  return {data, ggml_nbytes(node)};
}

bool is_of(const ggml_tensor* tensor, const StepGraph& graph, const NodeRange& nodes) {
  const std::int32_t at = graph.index_of(tensor);
  return at >= nodes.begin && at < nodes.end;
}

const NormLaunch* norm_of(const StepPhase& phase) {
  return std::get_if<NormLaunch>(&phase.launches.front());
}

// An input that is uploaded once: a rotation.
bool is_constant(const ggml_tensor* tensor) {
  return tensor->op == GGML_OP_NONE && tensor->type == GGML_TYPE_F32;
}

const AttentionLaunch* attention_of(const StepPhase& phase) {
  return std::get_if<AttentionLaunch>(&phase.launches.front());
}

// Nobody but mat-vecs of ours reads a norm's floats, or an attention's.
bool is_left(const StepGraph& graph, const StepPhase& phase, const ggml_tensor* node) {
  if (is_view(node) || !graph.is_read_outside(node, phase.nodes)) return false;
  const NormLaunch* norm = norm_of(phase);
  if (norm != nullptr && node == norm->part.out) return norm->writes_out;
  const AttentionLaunch* attention = attention_of(phase);
  return attention == nullptr || attention->writes_out;
}

// The row that the phase leaves as mat-vecs take it; nullptr: none.
const ggml_tensor* rounded_by(const StepPhase& phase) {
  if (const NormLaunch* norm = norm_of(phase)) return norm->rounds ? norm->part.out : nullptr;
  const AttentionLaunch* attention = attention_of(phase);
  return attention == nullptr ? nullptr : attention->rounded;
}

}  // namespace

PhaseTrial::PhaseTrial(LlamaBridge& bridge, const StepGraph& graph, const ValuePlaces& places,
                       const PhaseLauncher& launcher, std::chrono::microseconds limit)
    : bridge_(bridge), graph_(graph), places_(places), launcher_(launcher), limit_(limit) {}

void PhaseTrial::await() const { await_stream(bridge_.stream(), limit_); }

std::uint64_t PhaseTrial::random() noexcept {
  state_ ^= state_ << 13U;
  state_ ^= state_ >> 7U;
  state_ ^= state_ << 17U;
  return state_;
}

float PhaseTrial::activation() noexcept {
  const float even = 3.0F * (static_cast<float>(random() >> 40U) / (1U << 23U) - 1.0F);
  if (values_ == TrialValues::kEven) return even;
  const std::uint64_t kind = random() >> 56U;
  if (kind < 16) return kind % 2 == 0 ? 0.0F : -0.0F;
  // Down to a denormal, up to 1e18: the sum of squares stays finite.
  return kind < 64 ? std::ldexp(even, static_cast<int>(random() >> 40U) % 190 - 130) : even;
}

std::span<const float> PhaseTrial::any_values(std::size_t n) {
  while (any_values_.size() < n) any_values_.push_back(activation());
  return std::span(any_values_).first(n);
}

void PhaseTrial::fill(const ggml_tensor* tensor) {
  const auto n = static_cast<std::size_t>(ggml_nelements(tensor));
  // CUDA has read pageable memory when this returns; the stream has no kernel that could hang.
  const auto upload = [&](const auto& values) {
    cuda_check(cudaMemcpyAsync(tensor->data, values.data(), values.size() * sizeof values[0],
                               cudaMemcpyHostToDevice, bridge_.stream()),
               "cudaMemcpyAsync");
  };
  if (tensor->type == GGML_TYPE_F32 && is_timing_) {
    upload(any_values(n));
  } else if (tensor->type == GGML_TYPE_F32) {
    std::vector<float> values(n);
    std::ranges::generate(values, [this] { return activation(); });
    upload(values);
  } else if (tensor->type == GGML_TYPE_I64) {
    std::vector<std::int64_t> rows(n);  // of the cache
    std::iota(rows.begin(), rows.end(), 0);
    upload(rows);
  } else if (tensor->type == GGML_TYPE_I32 && tensor->op == GGML_OP_NONE) {
    std::vector<std::int32_t> positions(n);
    std::iota(positions.begin(), positions.end(), kPosition);
    upload(positions);
  } else if (tensor->type == GGML_TYPE_I32) {
    std::vector<std::int32_t> values(n);  // experts
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int32_t>(n - 1 - i);
    upload(values);
  } else if (tensor->type == GGML_TYPE_F16) {
    fill_mask(tensor);
  } else {
    throw std::runtime_error(std::string("self-test: an input is ") + ggml_type_name(tensor->type));
  }
}

void PhaseTrial::fill_mask(const ggml_tensor* mask) {
  constexpr std::size_t kBlock = 32;
  constexpr std::uint16_t kHidden = 0xfc00;
  const auto n = static_cast<std::size_t>(ggml_nelements(mask));
  std::vector<std::uint16_t> values(n, 0);
  // What a step sees of its window: all but at most 255 cells.
  std::size_t end = n - 128;
  if (!is_timing_) {
    end = n - random() % std::min<std::size_t>(256, n / 2);
    for (std::size_t i = 0; i < n; ++i) {
      if (random() >> 60U == 0) values[i] = kHidden;
    }
    for (std::size_t i = 0; i + kBlock <= n; i += kBlock) {
      if (random() >> 61U == 0) std::fill_n(values.begin() + static_cast<long>(i), kBlock, kHidden);
    }
    values[n / 2] = 0;  // one at least is seen
  }
  std::fill(values.begin() + static_cast<long>(end), values.end(), kHidden);
  cuda_check(cudaMemcpyAsync(mask->data, values.data(), n * sizeof values[0],
                             cudaMemcpyHostToDevice, bridge_.stream()),
             "cudaMemcpyAsync");
}

void PhaseTrial::fill_rows(const ggml_tensor* view) {
  constexpr std::size_t kRepeated = 1U << 16U;  // values: enough to tell rows apart
  const std::size_t n_bytes = view->nb[1] * static_cast<std::size_t>(view->ne[1]);
  std::vector<std::uint16_t> values(kRepeated + random() % 977);
  for (std::uint16_t& value : values) {
    value = static_cast<std::uint16_t>(random() >> 40U);
    if (values_ == TrialValues::kEven) value = ggml_fp32_to_fp16(activation());
    if ((value & 0x7c00U) == 0x7c00U) value &= 0x83ffU;  // no infinities
  }
  const std::size_t most = values.size() * sizeof values[0];
  // Rows end where the tensor's last head's end.
  const std::size_t end = n_bytes - view->nb[1] + ggml_row_size(view->type, view->ne[0]) +
                          view->nb[2] * static_cast<std::size_t>(view->ne[2] - 1);
  for (std::size_t at = 0; at < end; at += most) {
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(view->data) + at, values.data(),
                               std::min(most, end - at), cudaMemcpyHostToDevice, bridge_.stream()),
               "cudaMemcpyAsync");
  }
}

void PhaseTrial::choose_first_rows(const ggml_tensor* rows) {
  cuda_check(cudaMemsetAsync(rows->data, 0, ggml_nbytes(rows), bridge_.stream()),
             "cudaMemsetAsync");
}

void PhaseTrial::fill_inputs(const StepPhase& phase) {
  std::vector<const ggml_tensor*> filled;
  if (const AttentionLaunch* attention = attention_of(phase); attention != nullptr && !is_timing_) {
    fill_rows(attention->part.out->src[1]);
    fill_rows(attention->part.out->src[2]);
  }
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    if (is_view(graph_.node(i))) continue;
    for (const ggml_tensor* source : graph_.node(i)->src) {
      if (source == nullptr) continue;
      const ggml_tensor* whole = origin(source);
      if (is_weight(whole) || is_constant(whole) || is_of(whole, graph_, phase.nodes) ||
          std::ranges::find(filled, whole) != filled.end()) {
        continue;
      }
      if (graph_.node(i)->op == GGML_OP_GET_ROWS && source == graph_.node(i)->src[1]) {
        choose_first_rows(whole);
      } else {
        fill(whole);
      }
      filled.push_back(whole);
    }
  }
}

// The same activations each time, and nothing left of the time before.
void PhaseTrial::prepare(const StepPhase& phase) {
  state_ = kSeed * seed_;
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    if (is_view(graph_.node(i))) continue;
    const Span span = written(graph_.node(i));
    cuda_check(cudaMemsetAsync(span.data, 0xff, span.size, bridge_.stream()), "cudaMemsetAsync");
  }
  fill_inputs(phase);
}

void PhaseTrial::round_inputs(const StepPhase& phase) {
  std::vector<const ggml_tensor*> rounded;
  for (const PhaseLaunch& launch : phase.launches) {
    const ProductPart* part = nullptr;
    if (const auto* round = std::get_if<RoundLaunch>(&launch)) {
      rounded.push_back(origin(round->input));
    } else if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      part = &products->parts.front();
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launch)) {
      part = &gated->part.up;
    }
    if (part == nullptr || !takes_rounded(part->weights) ||
        is_of(origin(part->input), graph_, phase.nodes) ||
        std::ranges::find(rounded, origin(part->input)) != rounded.end()) {
      continue;
    }
    rounded.push_back(origin(part->input));
    round_row(part->input);
  }
}

void PhaseTrial::round_row(const ggml_tensor* row) {
  StepPhase alone;
  alone.launches.emplace_back(RoundLaunch{row});
  launcher_.enqueue(alone, bridge_.stream());
}

std::vector<PhaseTrial::Left> PhaseTrial::outputs(const StepPhase& phase) const {
  std::vector<Left> all;
  const auto take = [&](std::string name, const std::byte* data, std::size_t size) {
    all.push_back({std::move(name), std::vector<std::byte>(size)});
    cuda_check(cudaMemcpy(all.back().bytes.data(), data, size, cudaMemcpyDeviceToHost),
               "cudaMemcpy");
  };
  await();
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    const ggml_tensor* node = graph_.node(i);
    if (!is_left(graph_, phase, node)) continue;
    const Span span = written(node);
    take(std::string(ggml_op_name(node->op)) + " " + node->name, span.data, span.size);
  }
  const ggml_tensor* rows = rounded_by(phase);
  if (rows == nullptr) return all;
  if (const RecordRows records = places_.records(rows); records.n_eights > 0) {
    const std::int64_t n = batch_record_bytes(rows->ne[0], static_cast<std::int32_t>(rows->ne[1]));
    take("its batch records", reinterpret_cast<const std::byte*>(records.data),
         static_cast<std::size_t>(n));
  } else {
    const auto n = static_cast<std::size_t>(q8_blocks(rows->ne[0]) * rows->ne[1]);
    take("its rounded row", reinterpret_cast<const std::byte*>(places_.rounded(rows)),
         n * sizeof(Q8Block));
  }
  return all;
}

std::string PhaseTrial::first_difference(const std::vector<Left>& made,
                                         const std::vector<Left>& expected) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::vector<std::byte>&a = made[i].bytes, &b = expected[i].bytes;
    std::size_t n = 0;
    std::size_t first = 0;
    for (std::size_t at = 0; at + kWord <= b.size(); at += kWord) {
      if (std::memcmp(a.data() + at, b.data() + at, kWord) == 0) continue;
      if (n++ == 0) first = at;
    }
    if (n == 0) continue;
    std::uint32_t words[2];
    std::memcpy(&words[0], a.data() + first, kWord);
    std::memcpy(&words[1], b.data() + first, kWord);
    char told[120];
    std::snprintf(told, sizeof told, ": %zu of %zu words differ, word %zu is %08x and ggml's %08x",
                  n, b.size() / kWord, first / kWord, words[0], words[1]);
    return made[i].name + told;
  }
  return "";
}

std::string PhaseTrial::difference(const StepPhase& phase, TrialValues values, std::uint64_t seed) {
  values_ = values;
  is_timing_ = false;
  seed_ = seed;
  prepare(phase);
  bridge_.run(phase.nodes);
  if (const ggml_tensor* row = rounded_by(phase)) round_row(row);
  const std::vector<Left> expected = outputs(phase);
  prepare(phase);
  round_inputs(phase);
  launcher_.enqueue(phase, bridge_.stream());
  return first_difference(outputs(phase), expected);
}

}  // namespace unpaced
