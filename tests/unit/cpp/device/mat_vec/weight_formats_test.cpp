// The formats' unpacking beside ggml's own: a row's product is that of the weights which
// ggml_get_type_traits() says it has, to within rounding.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "ggml.h"
#include "ggml_order.h"
#include "random_blocks.h"

namespace weight_formats_test {
namespace {

using namespace unpaced;
using namespace unpaced::test;

TEST(rows_are_the_products_of_their_weights) {
  constexpr int kValues = 2048;
  Random random(5);
  for (const GgmlFormat& format : ggml_formats()) {
    const auto type = static_cast<ggml_type>(format.ggml_type);
    CHECK_EQ(ggml_blck_size(type), format.block_values);
    CHECK_EQ(static_cast<int>(ggml_type_size(type)), format.block_bytes);
    std::vector<std::uint8_t> row(
        static_cast<std::size_t>(kValues / format.block_values * format.block_bytes));
    for (std::size_t at = 0; at < row.size(); at += static_cast<std::size_t>(format.block_bytes))
      fill_block(format, row.data() + at, false, random);
    std::vector<float> weights(kValues);
    ggml_get_type_traits(type)->to_float(row.data(), weights.data(), kValues);
    std::vector<Q8Block> inputs(kValues / 32);
    double exact = 0;
    double size = 0;
    for (std::size_t b = 0; b < inputs.size(); ++b) {
      const std::uint16_t scale = random.half(false, false);
      std::int32_t total = 0;
      for (std::int8_t& value : inputs[b].values) {
        value = static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127);
        total += value;
      }
      inputs[b].scale_and_sum = scale;
      const double d = d8(inputs[b]);
      // The sum of the inputs, to within an F16's rounding: what is taken off Q4_0 and Q5_0.
      std::uint16_t sum_bits = 0;
      const double sum = d * total;
      for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        if (half_at(reinterpret_cast<const std::uint8_t*>(&half)) <= std::fabs(sum))
          sum_bits = half;
      }
      if (sum < 0) sum_bits |= 0x8000;
      inputs[b].scale_and_sum |= std::uint32_t{sum_bits} << 16;
      for (std::size_t i = 0; i < 32; ++i) {
        const double term = static_cast<double>(weights[32 * b + i]) * d * inputs[b].values[i];
        exact += term;
        size += std::fabs(term);
      }
    }
    const double got = ggml_row(format, row.data(), inputs.data(), kValues, 4);
    if (std::fabs(got - exact) > 1e-3 * size)
      report_failure(
          __FILE__, __LINE__,
          std::string(format.name) + ": " + std::to_string(got) + " for " + std::to_string(exact));
  }
}

}  // namespace
}  // namespace weight_formats_test
