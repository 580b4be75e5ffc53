// Values as q8: a warp's lane each, 32 that follow one another.
#pragma once

#include "device/kernels/ggml_device.cuh"
#include "device/kernels/q8_row.h"
#include "device/kernels/rows/batch_records.h"
#include "device/kernels/rows/tensor_records.h"

namespace unpaced {

// Of a row with its padding: q8_blocks() for the device.
__host__ __device__ constexpr int n_with_padding(int n_values) {
  return (n_values + kQ8RowPadding - 1) / kQ8RowPadding * kQ8RowPadding;
}

static_assert(sizeof(Q8Block) == sizeof(block_q8_1));

__device__ __forceinline__ int8_t rounded_byte(float value, float largest) {
  const float d = largest / 127.0f;
  return largest == 0.0f ? 0 : roundf(value / d);
}

// Where a row's blocks go beside their own place: records of which it is a column.
struct RecordColumn {
  std::uint8_t* records = nullptr;  // nullptr: nowhere
  int column = 0;
  bool of_bytes = false;
  int n_eights = 0;  // batch records, in these alone: columns of so many eights, and
  int n_blocks = 0;  // the row's blocks without its padding

  template <class Record>
  __device__ __forceinline__ std::uint8_t* record_of(int number) const {
    return records + number / 2 * std::int64_t{Record::kBytes};
  }

  // Blocks `number`, `number` + `stride` … of the row, of which the first n are there: each has its
  // bytes at a warp's lanes, and a scale as its F16 number has it.
  template <int kBlocks>
  __device__ __forceinline__ void store(int number, int stride, int n,
                                        const int8_t (&bytes)[kBlocks],
                                        const float (&scales)[kBlocks]) const {
    static_assert(kBlocks == 1 || kBlocks == 2 || kBlocks == 4);
    if (records == nullptr) return;
    if (of_bytes)
      store_bytes(number, stride, n, bytes, scales);
    else
      store_halves(number, stride, n, bytes, scales);
  }

 private:
  template <int kBlocks>
  __device__ __forceinline__ void store_bytes(int number, int stride, int n,
                                              const int8_t (&bytes)[kBlocks],
                                              const float (&scales)[kBlocks]) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k >= n) continue;
      const int at = number + k * stride;
      std::uint8_t* record = record_of<ByteRecord>(at);
      record[ByteRecord::value_at(column, at % 2, lane)] =
          static_cast<std::uint8_t>(bytes[k]) ^ std::uint8_t{0x80};
      if (lane == 0)
        *reinterpret_cast<float*>(record + ByteRecord::scale_at(column, at % 2)) = scales[k];
    }
  }

  template <int kBlocks>
  __device__ __forceinline__ void store_halves(int number, int stride, int n,
                                               const int8_t (&bytes)[kBlocks],
                                               const float (&scales)[kBlocks]) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int sums[kBlocks];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      sums[k] = bytes[k];
      if (k >= n) continue;
      const int at = number + k * stride;
      *reinterpret_cast<__half*>(record_of<HalfRecord>(at) +
                                 HalfRecord::value_at(column, at % 2, lane)) =
          __int2half_rn(bytes[k]);
      if (lane == 0)
        *reinterpret_cast<float*>(record_of<HalfRecord>(at) +
                                  HalfRecord::scale_at(column, at % 2)) = scales[k];
    }
    // Of a thread's eight bytes: a word's, and those of the fourth word behind it. At each stage
    // lanes give one another half of what they have.
    int mine = 0;  // whose sum this lane has
    int left = kBlocks;
#pragma unroll
    for (const int across : {16, 2, 1}) {
      if (left == 1) {
        sums[0] += __shfl_xor_sync(0xffffffff, sums[0], across);
        continue;
      }
      left /= 2;
      const bool upper = (lane & across) != 0;
      if (upper) mine += left;
#pragma unroll
      for (int k = 0; k < kBlocks / 2; ++k) {
        if (k >= left) break;
        const int given = upper ? sums[k] : sums[k + left];
        const int kept = upper ? sums[k + left] : sums[k];
        sums[k] = kept + __shfl_xor_sync(0xffffffff, given, across);
      }
    }
    const bool is_first = (lane & (kBlocks == 1 ? 19 : kBlocks == 2 ? 3 : 1)) == 0;
    if (!is_first || mine >= n) return;
    float scale = scales[0];
#pragma unroll
    for (int k = 1; k < kBlocks; ++k) scale = mine == k ? scales[k] : scale;
    const int at = number + mine * stride;
    *reinterpret_cast<float*>(record_of<HalfRecord>(at) +
                              HalfRecord::sum_at(column, at % 2, lane / 4 % 4)) =
        __fmul_rn(scale, static_cast<float>(sums[0]));
  }
};

// Row `row` of many: a column of the records of its eight.
__device__ __forceinline__ RecordColumn record_column(const RecordRows& rows, int row,
                                                      int n_values) {
  if (rows.data == nullptr) return {};
  const int eight = row / kRecordColumns, column = row % kRecordColumns;
  if (rows.n_eights > 0) {
    return {rows.data + eight * BatchRecord::kBytes, column, false, rows.n_eights,
            n_values / kQ8Values};
  }
  return {rows.data + eight * record_bytes(n_values), column, has_byte_records(n_values)};
}

// A row's block of 32 values in its batch record.
class BatchGroup {
 public:
  __device__ BatchGroup(const RecordColumn& column, int number)
      : record_(column.records +
                number / kBlocks * column.n_eights * std::int64_t{BatchRecord::kBytes}),
        column_(column.column),
        group_(number % kBlocks) {}

  __device__ std::uint8_t* value(int i) const {
    return record_ + BatchRecord::value_at(column_, group_, i);
  }
  __device__ void put_scale(float scale, float sum) const {
    *reinterpret_cast<half*>(record_ + BatchRecord::scale_at(column_, group_)) = scale;
    *reinterpret_cast<half*>(record_ + BatchRecord::sum_at(column_, group_)) = sum;
    *reinterpret_cast<float*>(record_ + BatchRecord::float_at(column_, group_)) = scale;
  }

 private:
  static constexpr int kBlocks = BatchRecord::kValues / kQ8Values;

  std::uint8_t* record_;
  int column_, group_;
};

// quantize_mmq_q8_1 of ggml-cuda's quantize.cu, whose threads have four values each. The whole warp
// calls it, for block `number` of the row.
__device__ __forceinline__ void round_to_batch(float value, const RecordColumn& column,
                                               int number) {
  const float largest = warp_reduce_max<QK8_1>(fabsf(value));
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float one = __shfl_sync(0xffffffff, value, lane / 4 * 4 + i);
    sum = i == 0 ? one : sum + one;
  }
#pragma unroll
  for (int offset = 16; offset >= 4; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
  if (number >= column.n_blocks) return;
  const BatchGroup group(column, number);
  const float inverse = 127.0f / largest;
  *group.value(lane) = static_cast<std::uint8_t>(static_cast<int8_t>(roundf(value * inverse)));
  if (lane == 0) group.put_scale(1.0f / inverse, sum);
}

// The same of four values that follow one another, as ggml's threads have them: eight lanes have
// block `number`.
__device__ __forceinline__ void round_to_batch(float4 values, const RecordColumn& column,
                                               int number) {
  constexpr int kLanes = kQ8Values / 4;
  float largest = fmaxf(fmaxf(fabsf(values.x), fabsf(values.y)), fabsf(values.z));
  largest = fmaxf(largest, fabsf(values.w));
  float sum = values.x + values.y + values.z + values.w;
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
    sum += __shfl_xor_sync(0xffffffff, sum, offset);
  }
  const BatchGroup group(column, number);
  const float inverse = 127.0f / largest;
  const auto byte = [inverse](float value) {
    return static_cast<signed char>(roundf(value * inverse));
  };
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  *reinterpret_cast<char4*>(group.value(4 * lane)) =
      make_char4(byte(values.x), byte(values.y), byte(values.z), byte(values.w));
  if (lane == 0) group.put_scale(1.0f / inverse, sum);
}

// quantize_q8_1 of ggml-cuda's quantize.cu, of values that are in registers. The whole warp calls
// it; its divisions are approximate (-use_fast_math), as there. `number` is the block's in its row.
__device__ __forceinline__ void round_block(float value, Q8Block* to,
                                            const RecordColumn& column = {}, int number = 0) {
  if (column.n_eights > 0) return round_to_batch(value, column, number);
  const float largest = warp_reduce_max<QK8_1>(fabsf(value));
  const float sum = warp_reduce_sum<QK8_1>(value);
  auto* block = reinterpret_cast<block_q8_1*>(to);
  const unsigned lane = threadIdx.x % QK8_1;
  const int8_t byte = rounded_byte(value, largest);
  const half2 scale_and_sum = make_half2(largest / 127.0f, sum);
  block->qs[lane] = byte;
  if (lane == 0) block->ds = scale_and_sum;
  column.store<1>(number, 1, 1, {byte}, {__low2float(scale_and_sum)});
}

// What a warp's lanes make of kValues values each, by ggml's butterfly, which `join` is a stage of:
// value k's is at lanes k * 32 / kValues and behind. At each stage lanes give one another half of
// what they have: a multiprocessor shuffles one warp's values a clock.
template <int kValues, class Join>
__device__ __forceinline__ float reduce_each(const float (&values)[kValues], Join join) {
  static_assert(kValues <= 32 && (kValues & (kValues - 1)) == 0);
  float left[kValues];
#pragma unroll
  for (int k = 0; k < kValues; ++k) left[k] = values[k];
  int n = kValues;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (n == 1) {
      left[0] = join(left[0], __shfl_xor_sync(0xffffffff, left[0], offset));
      continue;
    }
    n /= 2;
    const bool upper = (threadIdx.x & offset) != 0;
#pragma unroll
    for (int k = 0; k < kValues / 2; ++k) {
      if (k >= n) break;
      const float given = upper ? left[k] : left[k + n];
      const float kept = upper ? left[k + n] : left[k];
      left[k] = join(kept, __shfl_xor_sync(0xffffffff, given, offset));
    }
  }
  return left[0];
}

// The same of kBlocks blocks, one `stride` behind the other, of which the first n are there. One's
// shuffles do not wait for another's. The first is block `number` of its row.
template <int kBlocks>
__device__ __forceinline__ void round_blocks(const float* values, Q8Block* to, int stride, int n,
                                             const RecordColumn& column, int number) {
  if (column.n_eights > 0) {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k < n) round_to_batch(values[k], column, number + k * stride);
    }
    return;
  }
  constexpr int kLanesEach = 32 / kBlocks;
  float magnitudes[kBlocks];
  float summands[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    magnitudes[k] = fabsf(values[k]);
    summands[k] = values[k];
  }
  const float largest = reduce_each(magnitudes, [](float a, float b) { return fmaxf(a, b); });
  const float sum = reduce_each(summands, [](float a, float b) { return a + b; });
  const int lane = static_cast<int>(threadIdx.x % 32), mine = lane / kLanesEach;
  if (lane % kLanesEach == 0 && mine < n)
    reinterpret_cast<block_q8_1*>(to + mine * stride)->ds = make_half2(largest / 127.0f, sum);
  int8_t bytes[kBlocks];
  float scales[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    const float of_block = __shfl_sync(0xffffffff, largest, k * kLanesEach);
    bytes[k] = rounded_byte(values[k], of_block);
    scales[k] = __half2float(__float2half(of_block / 127.0f));
    if (k < n) reinterpret_cast<block_q8_1*>(to + k * stride)->qs[lane] = bytes[k];
  }
  column.store<kBlocks>(number, stride, n, bytes, scales);
}

}  // namespace unpaced
