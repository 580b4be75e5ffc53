// The formats that tensor cores multiply, by those of which they are.
#pragma once

#include "device/kernels/mat_vec/block/tensor_q6_k.h"
#include "device/kernels/mat_vec/block/tensor_q8_0.h"
#include "device/kernels/mat_vec/block/tensor_two_groups.h"

namespace unpaced::mat_vec {

// `Type` is void where there is none. `Record` is a kind of records (tensor_records.h).
template <class Format, class Record>
struct TensorFormat {
  using Type = void;
};
template <class Record>
struct TensorFormat<Q4K, Record> {
  using Type = TensorQ4K<Record>;
};
template <class Record>
struct TensorFormat<Q5K, Record> {
  using Type = TensorQ5K<Record>;
};
template <class Record>
struct TensorFormat<Q8_0, Record> {
  using Type = TensorQ8_0<Record>;
};
template <class Record>
struct TensorFormat<Q6K, Record> {
  using Type = TensorQ6K<Record>;
};

}  // namespace unpaced::mat_vec
