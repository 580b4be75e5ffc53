// As mat_vec_test, for weights that are not quantised: F32, BF16, and F16 with its sums in F16.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "device/kernels/mat_vec/plan.h"
#include "device/kernels/weights/float_weights.h"
#include "host_block.h"
#include "random_blocks.h"

namespace float_mat_vec_test {
namespace {

using namespace unpaced;
using namespace unpaced::test;
namespace mv = unpaced::mat_vec;

constexpr Card kCard = {.compute = 90, .n_multiprocessors = 2, .shared_bytes_max = 232448};

// ggml's sum of a row, format by format.
float expected_f32(const std::uint8_t* row, const std::vector<float>& y) {
  const auto at = [row](int i) {
    float value = 0;
    std::memcpy(&value, row + 4 * i, 4);
    return value;
  };
  return ggml_float_row<float>(
      static_cast<int>(y.size()),
      [&](int i, float sum) {
        return fma(at(2 * i + 1), y[static_cast<std::size_t>(2 * i + 1)],
                   fma(at(2 * i), y[static_cast<std::size_t>(2 * i)], sum));
      },
      [](float sum) { return sum; });
}

float expected_bf16(const std::uint8_t* row, const std::vector<float>& y) {
  const auto at = [row](int i) {
    return mv::as_float(static_cast<std::uint32_t>(row[2 * i] | row[2 * i + 1] << 8) << 16);
  };
  return ggml_float_row<float>(
      static_cast<int>(y.size()),
      [&](int i, float sum) {
        return fma(at(2 * i + 1), y[static_cast<std::size_t>(2 * i + 1)],
                   fma(at(2 * i), y[static_cast<std::size_t>(2 * i)], sum));
      },
      [](float sum) { return sum; });
}

// The compiler's own F16 as reference: a sum of exact products, rounded once.
struct Halves {
  float low = 0;
  float high = 0;
};

float rounded_to_half(double exact) {
  if (std::isnan(exact) || std::isinf(exact)) return static_cast<float>(exact);
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int place = std::max(exponent - 11, -24);
  const double value = std::ldexp(std::nearbyint(std::ldexp(exact, -place)), place);
  return std::fabs(value) >= 65520 ? std::copysign(INFINITY, static_cast<float>(exact))
                                   : static_cast<float>(value);
}

float expected_f16(const std::uint8_t* row, const std::vector<float>& y) {
  const auto part = [&](int i, float sum) {
    const double weight = half_at(row + 2 * i);
    return rounded_to_half(
        weight * static_cast<double>(rounded_to_half(y[static_cast<std::size_t>(i)])) +
        static_cast<double>(sum));
  };
  return ggml_float_row<Halves>(
      static_cast<int>(y.size()),
      [&](int i, Halves sum) { return Halves{part(2 * i, sum.low), part(2 * i + 1, sum.high)}; },
      [](Halves sum) { return add(sum.low, sum.high); });
}

// Gate and up are summed in F32.
float expected_f16_of_glu(const std::uint8_t* row, const std::vector<float>& y) {
  const auto at = [row](int i) { return half_at(row + 2 * i); };
  return ggml_float_row<float>(
      static_cast<int>(y.size()),
      [&](int i, float sum) {
        return fma(at(2 * i + 1), y[static_cast<std::size_t>(2 * i + 1)],
                   fma(at(2 * i), y[static_cast<std::size_t>(2 * i)], sum));
      },
      [](float sum) { return sum; });
}

struct Case {
  const char* name;
  WeightFormat format;
  int bytes;
  float (*expected)(const std::uint8_t*, const std::vector<float>&);
  float (*expected_of_glu)(const std::uint8_t*, const std::vector<float>&);
};
constexpr Case kCases[] = {{"F32", WeightFormat::kF32, 4, expected_f32, expected_f32},
                           {"BF16", WeightFormat::kBf16, 2, expected_bf16, expected_bf16},
                           {"F16", WeightFormat::kF16, 2, expected_f16, expected_f16_of_glu}};

template <class Shape>
void run(const mv::Plan& plan) {
  static Fibers fibers(HostBlock::kThreads);
  for (int block = 0; block < plan.n_thread_blocks; ++block) {
    HostBlock threads(fibers, block, plan.n_thread_blocks,
                      static_cast<std::size_t>(plan.shared_bytes));
    fibers.run([&](int thread) {
      HostPlace<false> place(threads, thread);
      mv::BlockWork<Shape, HostPlace<false>>(plan.task, place).run();
    });
  }
}

template <class Format, int kWarps = 8>
void run_with(const mv::Plan& plan) {
  if (plan.warps == kWarps)
    run<mv::Shape<Format, kWarps, 2, 1, false, 0>>(plan);
  else if constexpr (kWarps > 1)
    run_with<Format, kWarps - 1>(plan);
}

void compute(const MatVec& mat_vec) {
  const auto go = [&]<class Format>(Format) {
    const auto plan =
        mv::plan_mat_vec(mat_vec, mv::facts_of<Format>(), mv::ggml_warps(mat_vec, kCard),
                         {.rows = 2, .stage_bytes = 3000}, kCard);
    REQUIRE(plan.has_value());
    run_with<Format>(*plan);
  };
  switch (mat_vec.matrices[0].format) {
    case WeightFormat::kF32:
      return go(mv::F32{});
    case WeightFormat::kBf16:
      return go(mv::Bf16{});
    default:
      // As find_format() has it, which mat_vec_launch_test holds.
      return mat_vec.end == MatVecEnd::kGlu ? go(mv::F16OfGlu{}) : go(mv::F16{});
  }
}

// Weights of all sizes; F16's and BF16's bits are any.
std::vector<std::uint8_t> random_bytes(const Case& format, std::size_t n, bool wild,
                                       Random& random) {
  std::vector<std::uint8_t> bytes(n * static_cast<std::size_t>(format.bytes));
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t* at = bytes.data() + i * static_cast<std::size_t>(format.bytes);
    const float value = wild ? random.wild_real() : random.real();
    if (format.format == WeightFormat::kF32)
      std::memcpy(at, &value, 4);
    else if (format.format == WeightFormat::kBf16)
      std::memcpy(at, reinterpret_cast<const std::uint8_t*>(&value) + 2, 2);
    else
      put_half(at, random.half(wild, true));
  }
  return bytes;
}

void expect_equal(const Case& format, int n_values, MatVecEnd end, bool wild, std::uint32_t seed) {
  constexpr int kRows = 13;
  Random random(seed);
  const int n_matrices = end == MatVecEnd::kGlu ? 2 : 1;
  const std::size_t row_bytes = static_cast<std::size_t>(n_values * format.bytes);
  // 16 bytes before and behind may be read.
  std::vector<std::uint8_t> weights(row_bytes * kRows * 2 + 64);
  std::uint8_t* first = aligned_after_16(weights);
  const auto bytes =
      random_bytes(format, static_cast<std::size_t>(n_values * kRows * n_matrices), wild, random);
  std::memcpy(first, bytes.data(), bytes.size());
  std::vector<float> y(static_cast<std::size_t>(n_values)), added(kRows), out(kRows, NAN);
  for (float& value : y) value = wild ? random.wild_real() : random.real();
  for (float& value : added) value = random.real();
  MatVec made;
  made.n_matrices = n_matrices;
  for (int m = 0; m < n_matrices; ++m) {
    made.matrices[static_cast<std::size_t>(m)] = {
        .weights = first + static_cast<std::size_t>(m) * kRows * row_bytes,
        .format = format.format,
        .n_rows = kRows,
        .row_bytes = static_cast<std::int64_t>(row_bytes),
        .added = end == MatVecEnd::kAdded ? added.data() : nullptr,
        .out = out.data(),
        .out_stride = kRows};
  }
  made.n_values = n_values;
  made.end = end;
  made.input = y.data();
  made.input_stride = n_values;
  compute(made);
  int n = 0;
  const auto sum_of = end == MatVecEnd::kGlu ? format.expected_of_glu : format.expected;
  for (int row = 0; row < kRows; ++row) {
    float expected = sum_of(first + static_cast<std::size_t>(row) * row_bytes, y);
    if (end == MatVecEnd::kAdded) expected = add(expected, added[static_cast<std::size_t>(row)]);
    if (end == MatVecEnd::kGlu)
      expected = HostPlace<false>::glu(
          sum_of(first + static_cast<std::size_t>(kRows + row) * row_bytes, y), expected, {});
    const float got = out[static_cast<std::size_t>(row)];
    n += std::isnan(expected) ? !std::isnan(got) : mv::as_bits(expected) != mv::as_bits(got);
  }
  if (n != 0)
    report_failure(__FILE__, __LINE__,
                   std::string(format.name) + " K " + std::to_string(n_values) + ": " +
                       std::to_string(n) + " outputs differ");
}

TEST(floats_have_ggmls_bits_whatever_its_threads) {
  std::uint32_t seed = 1;
  for (const Case& format : kCases) {
    // One to eight warps of ggml's.
    for (const int n_values :
         {64, 128, 192, 256, 320, 384, 448, 512, 898, 896, 2048, 2880, 4096, 14336}) {
      for (const bool wild : {false, true}) {
        for (const MatVecEnd end : {MatVecEnd::kPlain, MatVecEnd::kAdded, MatVecEnd::kGlu})
          expect_equal(format, n_values, end, wild, ++seed);
      }
    }
  }
}

}  // namespace
}  // namespace float_mat_vec_test
