// Products on the GPU, by ggml's kernels and by ours, from the same memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "device/kernels/mat_mat.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/batch_records.h"
#include "device/kernels/rows/row_rounding.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/state/cuda_memory.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cuda.h"
#include "ggml.h"
#include "random_blocks.h"

namespace unpaced::test {

// All of ours, on the card.
inline const std::vector<GgmlFormat>& card_formats() {
  static const std::vector<GgmlFormat> all = [] {
    std::vector<GgmlFormat> formats = ggml_formats();
    formats.push_back({"F32", WeightFormat::kF32, GGML_TYPE_F32, 1, 4, 0, 0, nullptr});
    formats.push_back({"F16", WeightFormat::kF16, GGML_TYPE_F16, 1, 2, 0, 0, nullptr});
    formats.push_back({"BF16", WeightFormat::kBf16, GGML_TYPE_BF16, 1, 2, 0, 0, nullptr});
    return formats;
  }();
  return all;
}

inline bool is_quantised(const GgmlFormat& format) { return format.turn != nullptr; }

struct GgmlBackend {
  ggml_backend_t backend = ggml_backend_cuda_init(0);

  GgmlBackend() {
    if (backend == nullptr) throw std::runtime_error("no CUDA device");
  }
  ~GgmlBackend() { ggml_backend_free(backend); }
  GgmlBackend(const GgmlBackend&) = delete;
  GgmlBackend& operator=(const GgmlBackend&) = delete;
};

// What products of more than eight columns keep.
class ProductMemory {
 public:
  explicit ProductMemory(const Card& card) {
    const std::size_t n_sums = mat_mat_sum_bytes(kMatMatColumns, card);
    cuda_check(cudaMalloc(&memory_.sums, n_sums), "cudaMalloc");
    cuda_check(cudaMalloc(&memory_.arrivals, 4 * kMatMatArrivals), "cudaMalloc");
    cuda_check(cudaMemset(memory_.sums, 0xff, n_sums), "cudaMemset");
    cuda_check(cudaMemset(memory_.arrivals, 0, 4 * kMatMatArrivals), "cudaMemset");
  }
  ~ProductMemory() {
    cudaFree(memory_.sums);
    cudaFree(memory_.arrivals);
  }
  ProductMemory(const ProductMemory&) = delete;
  ProductMemory& operator=(const ProductMemory&) = delete;

  [[nodiscard]] const MatMatMemory& get() const { return memory_; }

 private:
  MatMatMemory memory_;
};

inline std::size_t records_bytes_of(int n_values, int n_columns) {
  return static_cast<std::size_t>(n_columns > kMatVecColumns
                                      ? batch_record_bytes(n_values, n_columns)
                                      : record_bytes(n_values));
}

// A graph with memory of its own on the device.
class GgmlGraph {
 public:
  explicit GgmlGraph(std::size_t n_tensors)
      : context_(ggml_init(
            {n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false),
             nullptr, true})),
        graph_(ggml_new_graph_custom(context_, n_tensors, false)) {}
  ~GgmlGraph() {
    ggml_backend_buffer_free(buffer_);
    ggml_free(context_);
  }
  GgmlGraph(const GgmlGraph&) = delete;
  GgmlGraph& operator=(const GgmlGraph&) = delete;

  [[nodiscard]] ggml_context* context() const { return context_; }
  void compute_last(ggml_tensor* tensor) { ggml_build_forward_expand(graph_, tensor); }

  void allocate(ggml_backend_t backend) {
    buffer_ = ggml_backend_alloc_ctx_tensors(context_, backend);
    if (buffer_ == nullptr) throw std::runtime_error("not enough memory on the device");
    // As a model's weights are: llama.cpp asks what a buffer is for.
    ggml_backend_buffer_set_usage(buffer_, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }
  void compute(ggml_backend_t backend) {
    if (ggml_backend_graph_compute(backend, graph_) != GGML_STATUS_SUCCESS)
      throw std::runtime_error("ggml cannot compute the graph");
  }
  void compute_async(ggml_backend_t backend) {
    if (ggml_backend_graph_compute_async(backend, graph_) != GGML_STATUS_SUCCESS)
      throw std::runtime_error("ggml cannot compute the graph");
  }

 private:
  ggml_context* context_;
  ggml_cgraph* graph_;
  ggml_backend_buffer_t buffer_ = nullptr;
};

template <class T>
void upload(ggml_tensor* tensor, const std::vector<T>& values) {
  ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(T));
}

template <class T>
std::vector<T> download(const void* from, std::size_t n) {
  std::vector<T> values(n);
  cuda_check(cudaMemcpy(values.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return values;
}

inline std::vector<std::uint8_t> random_weights(const GgmlFormat& format, std::size_t n_blocks,
                                                bool wild, Random& random) {
  std::vector<std::uint8_t> bytes(n_blocks * static_cast<std::size_t>(format.block_bytes));
  // Blocks repeat: making them is slow, and a kernel cannot tell.
  const std::size_t n_made = std::min<std::size_t>(n_blocks, 5003);
  for (std::size_t i = 0; i < n_made; ++i)
    fill_block(format, bytes.data() + i * static_cast<std::size_t>(format.block_bytes), wild,
               random);
  const std::size_t made = n_made * static_cast<std::size_t>(format.block_bytes);
  for (std::size_t at = made; at < bytes.size(); at += made)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(made, bytes.size() - at));
  return bytes;
}

// What is computed; the fields of MatVec's that matter.
struct GpuProduct {
  const GgmlFormat* format = nullptr;
  int n_values = 0;
  int n_rows = 0;
  int n_matrices = 1;  // kGlu: two
  int n_columns = 1;
  MatVecEnd end = MatVecEnd::kPlain;
  GluKind glu = GluKind::kSwiglu;
  int n_experts = 0;  // used, of twice as many
  bool expert_has_input = false;
  bool wild = false;
  int order_columns = 1;  // as MatVec has it: n_columns or 1
};

// One product, by both.
class GpuCase {
 public:
  GpuCase(const GpuProduct& product, GgmlBackend& backend, std::uint32_t seed)
      : product_(product), backend_(backend), random_(seed), graph_(32) {
    make_graph();
    graph_.allocate(backend.backend);
    fill();
    // A column, or an expert's vector, after the other.
    const std::size_t n_vectors = vectors();
    cuda_check(cudaMalloc(&inputs_, n_vectors * floats(product.n_values) * 4), "cudaMalloc");
    cuda_check(
        cudaMalloc(&rounded_, n_vectors * static_cast<std::size_t>(q8_blocks(product.n_values)) *
                                  sizeof(Q8Block)),
        "cudaMalloc");
    cuda_check(cudaMalloc(&records_, records_bytes_of(product.n_values, product.n_columns)),
               "cudaMalloc");
    cuda_check(cudaMalloc(&added_, 8 * added_values_.size() + 4), "cudaMalloc");
    cuda_check(cudaMalloc(&out_, out_bytes()), "cudaMalloc");
    cuda_check(cudaMemcpy(inputs_, values_.data(), values_.size() * 4, cudaMemcpyHostToDevice),
               "cudaMemcpy");
    if (!added_values_.empty())
      cuda_check(cudaMemcpy(added_, added_values_.data(), added_values_.size() * 4,
                            cudaMemcpyHostToDevice),
                 "cudaMemcpy");
  }
  ~GpuCase() {
    for (void* memory :
         {static_cast<void*>(inputs_), static_cast<void*>(rounded_), static_cast<void*>(records_),
          static_cast<void*>(added_), static_cast<void*>(out_)})
      cudaFree(memory);
  }
  GpuCase(const GpuCase&) = delete;
  GpuCase& operator=(const GpuCase&) = delete;

  // Column after column, as one column each; with order_columns all at once.
  std::vector<float> by_ggml() {
    std::vector<float> all;
    if (product_.order_columns > 1) {
      ggml_backend_tensor_set(input_, values_.data(), 0, values_.size() * 4);
      if (bias_ != nullptr)
        ggml_backend_tensor_set(bias_, added_values_.data(), 0, added_values_.size() * 4);
      graph_.compute(backend_.backend);
      return download<float>(result_->data, static_cast<std::size_t>(ggml_nelements(result_)));
    }
    const int n = product_.n_experts > 0 ? 1 : product_.n_columns;
    for (int column = 0; column < n; ++column) {
      const std::size_t one = floats(product_.n_values) * (product_.n_experts > 0 ? vectors() : 1);
      ggml_backend_tensor_set(input_, values_.data() + static_cast<std::size_t>(column) * one, 0,
                              one * 4);
      if (bias_ != nullptr && product_.n_experts == 0)
        ggml_backend_tensor_set(bias_, added_values_.data() + column * product_.n_rows, 0,
                                floats(product_.n_rows) * 4);
      graph_.compute(backend_.backend);
      const auto some =
          download<float>(result_->data, static_cast<std::size_t>(ggml_nelements(result_)));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  [[nodiscard]] MatVec mat_vec() const {
    MatVec made;
    made.n_matrices = product_.n_matrices;
    for (int i = 0; i < product_.n_matrices; ++i) {
      const ggml_tensor* weights = weights_[static_cast<std::size_t>(i)];
      const bool last = i + 1 == product_.n_matrices;
      made.matrices[static_cast<std::size_t>(i)] = {
          .weights = weights->data,
          .format = product_.format->format,
          .n_rows = product_.n_rows,
          .row_bytes = static_cast<std::int64_t>(weights->nb[1]),
          .expert_bytes = static_cast<std::int64_t>(weights->nb[2]),
          .added = product_.end == MatVecEnd::kAdded ? added_ : nullptr,
          .out = last ? out_ : nullptr,
          .out_stride = product_.n_rows,
          .added_stride = product_.n_rows};
    }
    made.n_values = product_.n_values;
    made.end = product_.end;
    made.glu = product_.glu;
    if (is_quantised(*product_.format)) {
      made.input_q8 = rounded_;
      made.input_records = records().data;
      made.input_stride = q8_blocks(product_.n_values);
    } else {
      made.input = inputs_;
      made.input_stride = product_.n_values;
    }
    made.n_columns = product_.n_columns;
    made.order_columns = product_.order_columns;
    made.experts = ids_ == nullptr ? nullptr : static_cast<const std::int32_t*>(ids_->data);
    made.n_experts = product_.n_experts;
    made.expert_has_input = product_.expert_has_input;
    return made;
  }

  // The other one's vectors in place of its own.
  void take_inputs(const GpuCase& other) { values_ = other.values_; }
  // Outputs are no numbers until they are computed.
  void forget() { cuda_check(cudaMemset(out_, 0xff, out_bytes()), "cudaMemset"); }
  [[nodiscard]] std::vector<float> outputs() const {
    return download<float>(out_, out_bytes() / 4);
  }

  // memory: for more than eight columns.
  std::vector<float> by_us(const MatVec& made, const Card& card, const MatMatMemory& memory = {}) {
    forget();
    enqueue_row_rounding({.input = inputs_,
                          .input_stride = product_.n_values,
                          .n_values = product_.n_values,
                          .n_rows = static_cast<std::int32_t>(vectors()),
                          .rounded = rounded_,
                          .records = records()},
                         card, nullptr);
    if (product_.n_columns > kMatVecColumns)
      enqueue_mat_mat(made, memory, card, nullptr);
    else
      enqueue_mat_vec(made, card, nullptr);
    cuda_check(cudaDeviceSynchronize(), "product");
    return outputs();
  }

 private:
  static std::size_t floats(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t vectors() const {
    return product_.n_experts > 0 ? floats(product_.expert_has_input ? product_.n_experts : 1)
                                  : floats(product_.n_columns);
  }
  // Of every second product: of the others a kernel makes them by itself.
  [[nodiscard]] RecordRows records() const {
    if (product_.n_columns > kMatVecColumns) return {records_, record_eights(product_.n_columns)};
    const bool has = (product_.n_values / 32 + product_.n_columns) % 2 == 0;
    return {has && product_.n_columns > 1 && product_.n_experts == 0 ? records_ : nullptr, 0};
  }
  [[nodiscard]] std::size_t out_bytes() const {
    return 4 * floats(product_.n_rows) * floats(std::max(product_.n_columns, product_.n_experts));
  }

  void make_graph() {
    ggml_context* context = graph_.context();
    const auto type = static_cast<ggml_type>(product_.format->ggml_type);
    const bool experts = product_.n_experts > 0;
    for (int i = 0; i < product_.n_matrices; ++i) {
      weights_.push_back(
          experts ? ggml_new_tensor_3d(context, type, product_.n_values, product_.n_rows,
                                       2 * product_.n_experts)
                  : ggml_new_tensor_2d(context, type, product_.n_values, product_.n_rows));
    }
    input_ = experts ? ggml_new_tensor_3d(context, GGML_TYPE_F32, product_.n_values,
                                          static_cast<std::int64_t>(vectors()), 1)
                     : ggml_new_tensor_2d(context, GGML_TYPE_F32, product_.n_values,
                                          product_.order_columns);
    if (experts) ids_ = ggml_new_tensor_2d(context, GGML_TYPE_I32, product_.n_experts, 1);
    std::vector<ggml_tensor*> products;
    for (ggml_tensor* weights : weights_)
      products.push_back(experts ? ggml_mul_mat_id(context, weights, input_, ids_)
                                 : ggml_mul_mat(context, weights, input_));
    result_ = products[0];
    if (product_.end == MatVecEnd::kAdded) {
      bias_ = ggml_new_tensor_2d(context, GGML_TYPE_F32, product_.n_rows,
                                 experts ? 2 * product_.n_experts : product_.order_columns);
      result_ =
          experts ? ggml_add_id(context, result_, bias_, ids_) : ggml_add(context, result_, bias_);
    } else if (product_.end == MatVecEnd::kGlu) {
      result_ = product_.glu == GluKind::kGeglu
                    ? ggml_geglu_split(context, products[0], products[1])
                : product_.glu == GluKind::kSwigluOai
                    ? ggml_swiglu_oai(context, products[0], products[1], 1.702F, 7.0F)
                    : ggml_swiglu_split(context, products[0], products[1]);
    }
    graph_.compute_last(result_);
  }

  void fill() {
    for (ggml_tensor* weights : weights_) {
      upload(weights, random_weights(*product_.format,
                                     ggml_nbytes(weights) /
                                         static_cast<std::size_t>(product_.format->block_bytes),
                                     product_.wild, random_));
    }
    values_.resize(vectors() * floats(product_.n_values));
    for (float& value : values_) value = product_.wild ? random_.wild_real() : random_.real();
    if (bias_ != nullptr) {
      added_values_.resize(std::max(static_cast<std::size_t>(ggml_nelements(bias_)),
                                    floats(product_.n_rows) * floats(product_.n_columns)));
      for (float& value : added_values_) value = random_.below(8) == 0 ? -0.0F : random_.real();
      if (product_.n_experts > 0) upload(bias_, added_values_);
    }
    if (ids_ != nullptr) {
      std::vector<std::int32_t> ids;
      for (int i = 0; i < product_.n_experts; ++i)
        ids.push_back((2 * i + 1) % (2 * product_.n_experts));
      upload(ids_, ids);
    }
  }

  GpuProduct product_;
  GgmlBackend& backend_;
  Random random_;
  GgmlGraph graph_;
  std::vector<ggml_tensor*> weights_;
  ggml_tensor* input_ = nullptr;
  ggml_tensor* ids_ = nullptr;
  ggml_tensor* bias_ = nullptr;
  ggml_tensor* result_ = nullptr;
  std::vector<float> values_;
  std::vector<float> added_values_;
  float* inputs_ = nullptr;
  Q8Block* rounded_ = nullptr;
  std::uint8_t* records_ = nullptr;
  float* added_ = nullptr;
  float* out_ = nullptr;
};

}  // namespace unpaced::test
