// Which products of many columns are ours, and their launches.
#include "device/kernels/mat_mat.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/rows/batch_records.h"

namespace unpaced {
namespace mat_mat {
namespace {

struct Format {
  WeightFormat name;
  StepShape step;
  LaunchFormat launch;
};

// The compute capability for which ggml has other tiles.
constexpr std::int32_t kOtherTiles = 100;

constexpr std::array<Format, 4> kFormats = {{
    {WeightFormat::kQ4_K, kQ4KStep, launch_q4_k},
    {WeightFormat::kQ5_K, kQ5KStep, launch_q5_k},
    {WeightFormat::kQ6_K, kQ6KStep, launch_q6_k},
    {WeightFormat::kQ8_0, kQ80Step, launch_q8_0},
}};

struct Pair {
  WeightFormat first, second;
  LaunchPair launch;
};
constexpr std::array<Pair, 2> kPairs = {{
    {WeightFormat::kQ4_K, WeightFormat::kQ6_K, launch_q4_k_and_q6_k},
    {WeightFormat::kQ5_K, WeightFormat::kQ6_K, launch_q5_k_and_q6_k},
}};

const Format* find_format(WeightFormat name) {
  const auto* found = std::ranges::find(kFormats, name, &Format::name);
  return found == kFormats.end() ? nullptr : found;
}

std::span<const MatVecMatrix> matrices_of(const MatVec& product) {
  return std::span(product.matrices).first(static_cast<std::size_t>(product.n_matrices));
}

std::string why_no_matrix(const MatVecMatrix& matrix, const MatVec& product, const Card& card) {
  const Format* format = find_format(matrix.format);
  if (format == nullptr) return "many columns of such weights";
  if (matrix.n_rows <= 0) return "a matrix has no rows";
  const std::int32_t n_steps = product.n_values / kStepValues;
  if (product.n_values % kStepValues != 0 || n_steps % format->step.row_steps != 0)
    return "its rows are no whole steps";
  if (matrix.row_bytes != std::int64_t{n_steps} * format->step.bytes ||
      reinterpret_cast<std::uintptr_t>(matrix.weights) % 16 != 0)
    return "its weights are not aligned";
  const bool is_gated = product.end == MatVecEnd::kGlu;
  const std::int32_t bytes = stage_bytes(format->step.pitch, is_gated ? 2 : 1,
                                         warp_eights(launch_columns(product.n_columns, is_gated)));
  if (n_stages(bytes, card.code) * bytes > card.shared_bytes_max)
    return "the card has too little shared memory for many columns";
  const Division division = divide(matrix.n_rows, product.n_values, card.n_multiprocessors);
  // Steps times parts are counted in 32 bits.
  const auto n_steps_all = std::int64_t{division.n_tiles} * division.n_steps + 1;
  if (n_steps_all * (division.n_parts + 1) > UINT32_MAX) return "a matrix has too many rows";
  return "";
}

// A launch's columns, from a multiple of eight on.
struct Columns {
  std::int32_t first, n;
};

// The first matrix of gate and up has no outputs, and many have nothing that is added.
template <class Value>
Value* behind(Value* values, std::int64_t n) {
  return values == nullptr ? nullptr : values + n;
}

// Behind those that the task has, n of n_tiles together.
void add_matrices(Task& task, const MatVec& product, WeightFormat format, std::int32_t first_column,
                  const Card& card, std::int32_t& n, std::int32_t& n_tiles) {
  for (const MatVecMatrix& matrix : matrices_of(product)) {
    if (matrix.format != format) continue;
    TaskMatrix& made = task.matrices[n++];
    made = {.weights = static_cast<const std::uint8_t*>(matrix.weights),
            .added = behind(matrix.added, first_column * matrix.added_stride),
            .out = behind(matrix.out, first_column * matrix.out_stride),
            .out_stride = matrix.out_stride,
            .added_stride = matrix.added_stride,
            .n_rows = matrix.n_rows,
            .row_bytes = static_cast<std::int32_t>(matrix.row_bytes),
            .row_pitch = find_format(format)->step.pitch,
            .first_tile = n_tiles,
            .division = divide(matrix.n_rows, product.n_values, card.n_multiprocessors)};
    n_tiles += made.division.n_tiles;
  }
}

bool has_format(const MatVec& product, WeightFormat format) {
  return std::ranges::any_of(matrices_of(product),
                             [&](const MatVecMatrix& m) { return m.format == format; });
}

// Of two formats that there are kernels for together; nullptr: none.
const Pair* pair_of(const MatVec& product) {
  const auto* found = std::ranges::find_if(kPairs, [&](const Pair& pair) {
    return has_format(product, pair.first) && has_format(product, pair.second) &&
           std::ranges::all_of(matrices_of(product), [&](const MatVecMatrix& m) {
             return m.format == pair.first || m.format == pair.second;
           });
  });
  return found == kPairs.end() || product.end == MatVecEnd::kGlu ? nullptr : found;
}

// Of the product's matrices in these formats, one format's behind the other's.
Task task_of(const MatVec& product, std::span<const WeightFormat> formats, Columns columns,
             const MatMatMemory& memory, const Card& card) {
  Task task = {};
  std::int32_t n = 0, n_tiles = 0;
  for (const WeightFormat format : formats) {
    add_matrices(task, product, format, columns.first, card, n, n_tiles);
    if (format == formats.front()) task.n_first = n;
  }
  task.n_streams = product.end == MatVecEnd::kGlu ? 1 : n;
  task.n_columns = columns.n;
  task.n_eights = record_eights(columns.n);
  task.record_step_bytes = record_eights(product.n_columns) * BatchRecord::kBytes;
  task.records = product.input_records + columns.first / kRecordColumns * BatchRecord::kBytes;
  task.sums = reinterpret_cast<float*>(memory.sums);
  task.arrivals = memory.arrivals;
  task.glu = product.glu;
  task.glu_limit = product.glu_limit;
  return task;
}

// Calls `launch` with the task of each launch. The last one's successor is ours, or not.
template <class Launch>
void for_launches(const MatVec& product, std::span<const WeightFormat> formats,
                  const MatMatMemory& memory, const Card& card, bool next_is_ours,
                  const Launch& launch) {
  const std::int32_t n_most = launch_columns(product.n_columns, product.end == MatVecEnd::kGlu);
  for (std::int32_t first = 0; first < product.n_columns; first += n_most) {
    const std::int32_t n = std::min(n_most, product.n_columns - first);
    Task task = task_of(product, formats, {.first = first, .n = n}, memory, card);
    task.next_is_ours = next_is_ours || first + n < product.n_columns;
    launch(task);
  }
}

}  // namespace
}  // namespace mat_mat

std::size_t mat_mat_sum_bytes(std::int32_t n_columns, const Card& card) noexcept {
  // Of each matrix a multiprocessor has two parts' sums of a tile at most.
  return std::size_t{2} * kMatVecMatrices * static_cast<std::size_t>(card.n_multiprocessors) *
         mat_mat::kTileRows * kRecordColumns * static_cast<std::size_t>(record_eights(n_columns)) *
         sizeof(float);
}

std::string why_no_mat_mat(const MatVec& product, const Card& card) {
  if (card.code < 80 || card.compute >= mat_mat::kOtherTiles) return "many columns on such a card";
  if (product.experts != nullptr) return "experts have one column";
  if (product.n_columns <= kMatVecColumns || product.n_columns > kMatMatColumns)
    return "the columns are too few or too many";
  std::int32_t n_tiles = 0;
  for (const MatVecMatrix& matrix : mat_mat::matrices_of(product)) {
    if (std::string why = mat_mat::why_no_matrix(matrix, product, card); !why.empty()) return why;
    n_tiles += (matrix.n_rows + mat_mat::kTileRows - 1) / mat_mat::kTileRows;
  }
  const bool is_gated = product.end == MatVecEnd::kGlu;
  if (is_gated &&
      (product.n_matrices != 2 || product.matrices[0].n_rows != product.matrices[1].n_rows ||
       product.matrices[0].format != product.matrices[1].format))
    return "gate and up are not two matrices of one shape";
  if (n_tiles * mat_mat::kWarps > kMatMatArrivals) return "a matrix has too many rows";
  return "";
}

void enqueue_mat_mat(const MatVec& product, const MatMatMemory& memory, const Card& card,
                     CUstream_st* stream) {
  using mat_mat::Task;
  if (const mat_mat::Pair* pair = mat_mat::pair_of(product)) {
    return mat_mat::for_launches(product, std::array{pair->first, pair->second}, memory, card,
                                 product.next_is_ours,
                                 [&](const Task& task) { pair->launch(task, card, stream); });
  }
  const bool is_gated = product.end == MatVecEnd::kGlu;
  std::vector<mat_mat::Format> formats;
  std::ranges::copy_if(
      mat_mat::kFormats, std::back_inserter(formats),
      [&](const mat_mat::Format& format) { return mat_mat::has_format(product, format.name); });
  for (const mat_mat::Format& format : formats) {
    mat_mat::for_launches(product, std::array{format.name}, memory, card,
                          product.next_is_ours || &format != &formats.back(),
                          [&](const Task& task) { format.launch(task, is_gated, card, stream); });
  }
}

}  // namespace unpaced
