// The mat-vec kernels against ggml's own, bit by bit, on the card: every format, length, end,
// number of columns and build.
//
//   mat_vec_test [FORMAT]    without one: all, and those that share launches; "pairs": only these;
//                            "crowds": only more than eight columns
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/kernels/card.h"
#include "mat_vec_rig.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

struct Totals {
  int products = 0;
  int launches = 0;
  int wrong = 0;
};

struct Difference {
  int n = 0;
  std::size_t first = 0;
  std::uint32_t made = 0, expected = 0;  // the first one's bits
};

Difference difference(const std::vector<float>& made, const std::vector<float>& expected) {
  if (made.size() != expected.size()) throw std::runtime_error("outputs of another size");
  Difference found;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (std::memcmp(&made[i], &expected[i], sizeof(float)) == 0) continue;
    if (found.n++ > 0) continue;
    found.first = i;
    std::memcpy(&found.made, &made[i], sizeof(float));
    std::memcpy(&found.expected, &expected[i], sizeof(float));
  }
  return found;
}

void tell(const Difference& found, std::size_t n) {
  std::printf("%d of %zu differ, output %zu is %08x and ggml's %08x\n", found.n, n, found.first,
              found.made, found.expected);
}

void compare(const GpuProduct& product, GgmlBackend& backend, const Card& card, Totals& totals) {
  GpuCase both(product, backend, static_cast<std::uint32_t>(totals.products) + 1);
  MatVec made = both.mat_vec();
  ++totals.products;
  if (const std::string why = why_no_mat_vec(made, card); !why.empty()) {
    std::printf("%s: ggml's: %s\n", product.format->name, why.c_str());
    return;
  }
  const std::vector<float> expected = both.by_ggml();
  const std::int32_t n_variants = n_mat_vec_variants(made, card);
  for (made.variant = 0; made.variant < n_variants; ++made.variant) {
    ++totals.launches;
    const Difference found = difference(both.by_us(made, card), expected);
    if (found.n == 0) continue;
    ++totals.wrong;
    std::printf("%s K %d rows %d columns %d%s end %d glu %d experts %d%s variant %d: ",
                product.format->name, product.n_values, product.n_rows, product.n_columns,
                product.order_columns > 1 ? " in their order" : "", static_cast<int>(product.end),
                static_cast<int>(product.glu), product.n_experts, product.wild ? " wild" : "",
                made.variant);
    tell(found, expected.size());
  }
}

// More than eight columns, in ggml's order for so many.
void compare_many(const GpuProduct& product, GgmlBackend& backend, const Card& card,
                  const ProductMemory& memory, Totals& totals) {
  GpuCase both(product, backend, static_cast<std::uint32_t>(totals.products) + 1);
  const MatVec made = both.mat_vec();
  ++totals.products;
  if (const std::string why = why_no_mat_mat(made, card); !why.empty()) {
    std::printf("%s K %d: ggml's: %s\n", product.format->name, product.n_values, why.c_str());
    return;
  }
  const std::vector<float> expected = both.by_ggml();
  // Twice: counters are zero again behind a launch.
  for (int turn = 0; turn < 2; ++turn) {
    ++totals.launches;
    const Difference found = difference(both.by_us(made, card, memory.get()), expected);
    if (found.n == 0) continue;
    ++totals.wrong;
    std::printf("%s K %d rows %d columns %d end %d glu %d turn %d: ", product.format->name,
                product.n_values, product.n_rows, product.n_columns, static_cast<int>(product.end),
                static_cast<int>(product.glu), turn);
    tell(found, expected.size());
  }
}

void compare_crowds(const GgmlFormat& format, GgmlBackend& backend, const Card& card,
                    Totals& totals) {
  const ProductMemory memory(card);
  // Tiles that are parts, parts of several tiles and of none, and rows that are no whole tiles.
  for (const int n_rows : {64, 517, 1024, 4096, 15616, 20001}) {
    for (const int n_values : {256, 2048, 4096, 14336}) {
      if (std::int64_t{n_rows} * n_values > 100'000'000) continue;
      for (const int n_columns : {9, 16, 19, 32, 40, 61, 80, 83, 104, 128}) {
        GpuProduct product = {.format = &format,
                              .n_values = n_values,
                              .n_rows = n_rows,
                              .n_columns = n_columns,
                              .order_columns = n_columns};
        compare_many(product, backend, card, memory, totals);
        product.end = MatVecEnd::kAdded;
        compare_many(product, backend, card, memory, totals);
        product.end = MatVecEnd::kGlu;
        product.n_matrices = 2;
        product.glu = n_columns % 2 == 0 ? GluKind::kSwiglu : GluKind::kGeglu;
        compare_many(product, backend, card, memory, totals);
      }
    }
  }
}

const GgmlFormat& format_named(const std::string& name) {
  for (const GgmlFormat& format : ggml_formats()) {
    if (name == format.name) return format;
  }
  throw std::runtime_error("no such format: " + name);
}

// Two formats in one launch.
void compare_pair(const char* first, const char* second, int n_columns, int n_values,
                  GgmlBackend& backend, const Card& card, Totals& totals) {
  GpuProduct product = {
      .format = &format_named(first), .n_values = n_values, .n_rows = 517, .n_columns = n_columns};
  GpuCase a(product, backend, 1);
  product.format = &format_named(second);
  GpuCase b(product, backend, 2);
  b.take_inputs(a);
  const std::vector<float> expected_a = a.by_ggml(), expected_b = b.by_ggml();
  MatVec made = a.mat_vec();
  made.n_matrices = 2;
  made.matrices[1] = b.mat_vec().matrices[0];
  ++totals.products;
  if (const std::string why = why_no_mat_vec(made, card); !why.empty()) {
    std::printf("%s and %s: ggml's: %s\n", first, second, why.c_str());
    return;
  }
  const std::int32_t n_variants = n_mat_vec_variants(made, card);
  for (made.variant = 0; made.variant < n_variants; ++made.variant) {
    ++totals.launches;
    b.forget();
    const Difference of_a = difference(a.by_us(made, card), expected_a);
    const Difference of_b = difference(b.outputs(), expected_b);
    if (of_a.n == 0 && of_b.n == 0) continue;
    ++totals.wrong;
    for (const Difference& found : {of_a, of_b}) {
      std::printf("%s and %s, columns %d variant %d: ", first, second, n_columns, made.variant);
      tell(found, expected_a.size());
    }
  }
}

// The same of many columns: a large matrix and a small one, as Q and V.
void compare_many_pair(const char* first, const char* second, int n_columns, int n_values,
                       GgmlBackend& backend, const Card& card, const ProductMemory& memory,
                       Totals& totals) {
  GpuProduct product = {.format = &format_named(first),
                        .n_values = n_values,
                        .n_rows = 2048,
                        .n_columns = n_columns,
                        .order_columns = n_columns};
  GpuCase a(product, backend, 1);
  product.format = &format_named(second);
  product.n_rows = 517;
  GpuCase b(product, backend, 2);
  b.take_inputs(a);
  const std::vector<float> expected_a = a.by_ggml(), expected_b = b.by_ggml();
  MatVec made = a.mat_vec();
  made.n_matrices = 2;
  made.matrices[1] = b.mat_vec().matrices[0];
  ++totals.products;
  if (const std::string why = why_no_mat_mat(made, card); !why.empty()) {
    std::printf("%s and %s: ggml's: %s\n", first, second, why.c_str());
    return;
  }
  for (int turn = 0; turn < 2; ++turn) {
    ++totals.launches;
    b.forget();
    const Difference of_a = difference(a.by_us(made, card, memory.get()), expected_a);
    const Difference of_b = difference(b.outputs(), expected_b);
    if (of_a.n == 0 && of_b.n == 0) continue;
    ++totals.wrong;
    for (const Difference& found : {of_a, of_b}) {
      std::printf("%s and %s, columns %d K %d turn %d: ", first, second, n_columns, n_values, turn);
      tell(found, expected_a.size());
    }
  }
}

void compare_format(const GgmlFormat& format, GgmlBackend& backend, const Card& card,
                    Totals& totals) {
  const std::vector<int> lengths =
      !is_quantised(format)        ? std::vector{64, 192, 320, 896, 2048, 2880, 4096}
      : format.block_values == 256 ? std::vector{256, 1024, 2048, 2816, 4096, 14336}
                                   : std::vector{32, 96, 896, 1024, 1696, 4096, 14336};
  for (const int n_values : lengths) {
    for (const bool wild : {false, true}) {
      const GpuProduct one = {.format = &format, .n_values = n_values, .n_rows = 517, .wild = wild};
      compare(one, backend, card, totals);
      GpuProduct product = one;
      product.end = MatVecEnd::kAdded;
      compare(product, backend, card, totals);
      product.end = MatVecEnd::kGlu;
      product.n_matrices = 2;
      for (const GluKind glu : {GluKind::kSwiglu, GluKind::kGeglu, GluKind::kSwigluOai}) {
        product.glu = glu;
        compare(product, backend, card, totals);
      }
    }
    if (!is_quantised(format)) continue;
    for (const int n_columns : {2, 3, 4, 5, 8}) {
      compare({.format = &format,
               .n_values = n_values,
               .n_rows = 517,
               .n_columns = n_columns,
               .wild = n_columns == 4},
              backend, card, totals);
    }
    for (int n_columns = 2; n_columns <= 8; ++n_columns) {
      GpuProduct product = {.format = &format,
                            .n_values = n_values,
                            .n_rows = 517,
                            .n_columns = n_columns,
                            .wild = n_columns % 2 == 1,
                            .order_columns = n_columns};
      compare(product, backend, card, totals);
      product.end = MatVecEnd::kAdded;
      compare(product, backend, card, totals);
      product.end = MatVecEnd::kGlu;
      product.n_matrices = 2;
      for (const GluKind glu : {GluKind::kSwiglu, GluKind::kGeglu}) {
        product.glu = glu;
        compare(product, backend, card, totals);
      }
    }
  }
  compare({.format = &format, .n_values = 4096, .n_rows = 20001}, backend, card, totals);
  if (!is_quantised(format)) return;
  for (const bool own : {false, true}) {
    compare({.format = &format,
             .n_values = 768,
             .n_rows = 516,
             .n_experts = 8,
             .expert_has_input = own},
            backend, card, totals);
    compare({.format = &format,
             .n_values = 2048,
             .n_rows = 768,
             .n_matrices = 2,
             .end = MatVecEnd::kGlu,
             .n_experts = 8,
             .expert_has_input = own},
            backend, card, totals);
  }
  compare({.format = &format,
           .n_values = 2048,
           .n_rows = 300,
           .end = MatVecEnd::kAdded,
           .n_experts = 4},
          backend, card, totals);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Card card = find_card(0);
    GgmlBackend backend;
    Totals totals;
    for (const GgmlFormat& format : card_formats()) {
      if (argc > 1 && std::strcmp(argv[1], format.name) != 0) continue;
      const Totals before = totals;
      compare_format(format, backend, card, totals);
      std::printf("%s: %d products, %d launches, %d differ\n", format.name,
                  totals.products - before.products, totals.launches - before.launches,
                  totals.wrong - before.wrong);
      std::fflush(stdout);
    }
    for (const char* name : {"Q4_K", "Q5_K", "Q6_K", "Q8_0"}) {
      if (argc > 1 && std::strcmp(argv[1], "crowds") != 0) break;
      const Totals before = totals;
      compare_crowds(format_named(name), backend, card, totals);
      std::printf("%s: %d products of many columns, %d differ\n", name,
                  totals.products - before.products, totals.wrong - before.wrong);
      std::fflush(stdout);
    }
    for (const int n_columns : {9, 16, 40, 61, 80, 83, 104, 128}) {
      if (argc > 1 && std::strcmp(argv[1], "crowds") != 0 && std::strcmp(argv[1], "pairs") != 0)
        break;
      const ProductMemory memory(card);
      for (const int n_values : {2048, 4096, 14336}) {
        compare_many_pair("Q4_K", "Q6_K", n_columns, n_values, backend, card, memory, totals);
        compare_many_pair("Q5_K", "Q6_K", n_columns, n_values, backend, card, memory, totals);
      }
    }
    for (const int n_columns : {1, 2, 4, 8}) {
      if (argc > 1 && std::strcmp(argv[1], "pairs") != 0) break;
      for (const int n_values : {4096, 9216}) {
        compare_pair("Q4_K", "Q6_K", n_columns, n_values, backend, card, totals);
        compare_pair("Q5_K", "Q6_K", n_columns, n_values, backend, card, totals);
        compare_pair("IQ4_XS", "Q5_K", n_columns, n_values, backend, card, totals);
      }
    }
    std::printf("%d products, %d launches, %d differ\n", totals.products, totals.launches,
                totals.wrong);
    return totals.wrong == 0 && totals.launches > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
