// A product in host memory, and what ggml makes of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/pinned_float.h"
#include "ggml_order.h"
#include "host_block.h"
#include "random_blocks.h"

namespace unpaced::test {

inline constexpr int kGgmlWarps = 4;

struct Product {
  const GgmlFormat* format = nullptr;           // of all matrices
  std::vector<const GgmlFormat*> formats = {};  // or of each
  int n_values = 0;
  std::vector<int> rows;  // of each matrix
  int n_columns = 1;
  int order_columns = 1;  // as MatVec has it
  MatVecEnd end = MatVecEnd::kPlain;
  bool wild = false;
  int misaligned = 0;  // bytes before the first row
  int n_experts = 0;   // used, of twice as many
  bool expert_has_input = false;
  bool has_records = false;  // for tensor cores
};

// A product's memory, and what ggml makes of it.
class Data {
 public:
  Data(const Product& product, std::uint32_t seed) : product_(product), random_(seed) {
    const int n_matrices_each = std::max(1, 2 * product.n_experts);
    for (std::size_t m = 0; m < product.rows.size(); ++m) {
      const GgmlFormat& format = format_of(m);
      const std::size_t row_bytes = row_bytes_of(m);
      const int n_rows = product.rows[m];
      const auto n = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(n_matrices_each);
      auto& bytes =
          weights_.emplace_back(n * row_bytes + 64 + static_cast<std::size_t>(product.misaligned));
      std::uint8_t* first = aligned_after_16(bytes) + product.misaligned;
      for (std::size_t i = 0; i < n * row_bytes; i += static_cast<std::size_t>(format.block_bytes))
        fill_block(format, first + i, product.wild, random_);
      auto& added = added_.emplace_back(n + 8 * static_cast<std::size_t>(longest()));
      for (float& value : added) value = random_.below(8) == 0 ? -0.0F : random_.real();
      out_.emplace_back(8 * static_cast<std::size_t>(longest() + 6), NAN);
    }
    n_vectors_ = product.expert_has_input ? product.n_experts : product.n_columns;
    input_stride_ = q8_blocks(product.n_values) + 16;
    input_.resize(static_cast<std::size_t>(input_stride_ * n_vectors_));
    for (Q8Block& block : input_) fill_input(block);
    if (product.has_records) make_records();
    for (int i = 0; i < product.n_experts; ++i)
      experts_.push_back(static_cast<std::int32_t>(
          random_.below(2 * static_cast<std::uint32_t>(product.n_experts))));
  }

  [[nodiscard]] MatVec mat_vec() {
    MatVec made;
    made.n_matrices = static_cast<std::int32_t>(product_.rows.size());
    for (std::size_t i = 0; i < product_.rows.size(); ++i) {
      made.matrices[i] = {
          .weights = aligned_after_16(weights_[i]) + product_.misaligned,
          .format = format_of(i).format,
          .n_rows = product_.rows[i],
          .row_bytes = static_cast<std::int64_t>(row_bytes_of(i)),
          .expert_bytes = static_cast<std::int64_t>(row_bytes_of(i)) * product_.rows[i],
          .added = has_added(i) ? added_[i].data() : nullptr,
          .out = out_[i].data(),
          .out_stride = longest() + 3 + static_cast<int>(i),
          .added_stride = shares_added() ? 0 : longest()};
    }
    made.n_values = product_.n_values;
    made.end = product_.end;
    made.input_q8 = input_.data();
    made.input_stride = input_stride_;
    if (!records_.empty()) made.input_records = aligned_after_16(records_);
    made.n_columns = product_.n_columns;
    made.order_columns = product_.order_columns;
    made.experts = experts_.empty() ? nullptr : experts_.data();
    made.n_experts = product_.n_experts;
    made.expert_has_input = product_.expert_has_input;
    return made;
  }

  // Outputs are no numbers until they are computed.
  void forget() {
    for (auto& out : out_) std::ranges::fill(out, NAN);
  }

  // How many outputs differ from ggml's.
  [[nodiscard]] int differing() {
    const MatVec made = mat_vec();
    int n = 0;
    const bool paired = product_.end == MatVecEnd::kGlu;
    for (std::size_t i = paired ? 1 : 0; i < product_.rows.size(); ++i) {
      for (int vector = 0; vector < std::max(product_.n_columns, product_.n_experts); ++vector) {
        for (int row = 0; row < product_.rows[i]; ++row) {
          const float expected = paired ? HostPlace<false>::glu(ended(made, 1, vector, row),
                                                                ended(made, 0, vector, row), {})
                                        : ended(made, i, vector, row);
          const float got =
              out_[i][static_cast<std::size_t>(vector * made.matrices[i].out_stride + row)];
          const bool equal = std::isnan(expected)
                                 ? std::isnan(got)
                                 : mat_vec::as_bits(expected) == mat_vec::as_bits(got);
          n += equal ? 0 : 1;
        }
      }
    }
    return n;
  }

 private:
  [[nodiscard]] const GgmlFormat& format_of(std::size_t matrix) const {
    return product_.formats.empty() ? *product_.format : *product_.formats[matrix];
  }
  [[nodiscard]] std::size_t row_bytes_of(std::size_t matrix) const {
    const GgmlFormat& format = format_of(matrix);
    return static_cast<std::size_t>(product_.n_values / format.block_values) *
           static_cast<std::size_t>(format.block_bytes);
  }
  [[nodiscard]] int longest() const {
    return *std::max_element(product_.rows.begin(), product_.rows.end());
  }

  // A bias, not a residual.
  [[nodiscard]] bool shares_added() const { return product_.order_columns % 2 == 0; }

  // Of one column a missing one counts as 0, which turns -0 into +0.
  [[nodiscard]] bool has_added(std::size_t i) const {
    return product_.end == MatVecEnd::kAdded || (product_.end == MatVecEnd::kGlu && i == 1);
  }

  void fill_input(Q8Block& block) {
    const std::uint32_t scale = random_.half(product_.wild, false);
    block.scale_and_sum = scale | std::uint32_t{random_.half(product_.wild, true)} << 16;
    for (std::int8_t& value : block.values)
      value = static_cast<std::int8_t>(static_cast<int>(random_.below(255)) - 127);
    if (random_.below(16) == 0)
      std::fill(std::begin(block.values), std::end(block.values), std::int8_t{0});
    if (random_.below(16) == 0)
      std::fill(std::begin(block.values), std::end(block.values), std::int8_t{-127});
  }

  // As the kernels that round rows make them (rounding.cuh).
  void make_records() {
    records_.resize(static_cast<std::size_t>(record_bytes(product_.n_values)) + 64, 0xff);
    for (int column = 0; column < product_.n_columns; ++column) {
      for (int n = 0; n < product_.n_values / kQ8Values; ++n) {
        const Q8Block& block = input_[static_cast<std::size_t>(column * input_stride_ + n)];
        if (has_byte_records(product_.n_values))
          store_bytes(block, column, n);
        else
          store_halves(block, column, n);
      }
    }
  }

  void store_bytes(const Q8Block& block, int column, int n) {
    std::uint8_t* record = aligned_after_16(records_) + n / 2 * ByteRecord::kBytes;
    for (int i = 0; i < kQ8Values; ++i)
      record[ByteRecord::value_at(column, n % 2, i)] =
          static_cast<std::uint8_t>(block.values[i] + 128);
    const float scale = d8(block);
    std::memcpy(record + ByteRecord::scale_at(column, n % 2), &scale, sizeof scale);
  }

  void store_halves(const Q8Block& block, int column, int n) {
    std::uint8_t* record = aligned_after_16(records_) + n / 2 * HalfRecord::kBytes;
    int sums[4] = {};
    for (int i = 0; i < kQ8Values; ++i) {
      const std::uint32_t half = mat_vec::two_halves(block.values[i], 0);
      std::memcpy(record + HalfRecord::value_at(column, n % 2, i), &half, 2);
      sums[i / 4 % 4] += block.values[i];
    }
    const float scale = d8(block);
    std::memcpy(record + HalfRecord::scale_at(column, n % 2), &scale, sizeof scale);
    for (int thread = 0; thread < 4; ++thread) {
      const float sum = mul(scale, static_cast<float>(sums[thread]));
      std::memcpy(record + HalfRecord::sum_at(column, n % 2, thread), &sum, sizeof sum);
    }
  }

  // The sum of a row of matrix i, and what ends it.
  [[nodiscard]] float ended(const MatVec& made, std::size_t i, int vector, int row) const {
    const MatVecMatrix& matrix = made.matrices[i];
    const int expert = product_.n_experts > 0 ? experts_[static_cast<std::size_t>(vector)] : 0;
    const int column = product_.n_experts > 0 ? 0 : vector;
    const auto* weights = static_cast<const std::uint8_t*>(matrix.weights) +
                          expert * matrix.expert_bytes + row * matrix.row_bytes;
    const int input = product_.n_experts > 0 && !product_.expert_has_input ? 0 : vector;
    const float total = ggml_row(format_of(i), weights, input_.data() + input * input_stride_,
                                 product_.n_values, product_.order_columns > 4 ? 2 : kGgmlWarps);
    if (product_.end == MatVecEnd::kPlain) return total;
    const float* added = matrix.added;
    if (added == nullptr && product_.order_columns > 1) return total;
    return add(total, added == nullptr
                          ? 0.0F
                          : added[expert * matrix.n_rows + row + column * matrix.added_stride]);
  }

  Product product_;
  Random random_;
  int n_vectors_ = 0;
  std::int64_t input_stride_ = 0;
  std::vector<std::vector<std::uint8_t>> weights_;
  std::vector<std::vector<float>> added_;
  std::vector<std::vector<float>> out_;
  std::vector<Q8Block> input_;
  std::vector<std::uint8_t> records_;
  std::vector<std::int32_t> experts_;
};

}  // namespace unpaced::test
