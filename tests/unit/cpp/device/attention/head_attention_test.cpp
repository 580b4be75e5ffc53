// The attention kernel's arithmetic on the host, bit by bit beside ggml's order: sizes of heads,
// windows, how many parts, masks, sinks, and what it leaves.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "host_attention.h"

namespace head_attention_test {
namespace {

using namespace unpaced;
using namespace unpaced::test;

struct Case {
  int size = 64;
  int n_heads = 2;
  int n_sharing = 2;
  int n_cells = 256;
  int n_parts = 2;
  float cap = 0;
  bool has_sinks = false;
  enum { kFew, kScattered, kAll } shown = kScattered;
};

class Attention {
 public:
  Attention(const Case& c, unsigned seed) : random_(seed) {
    const int row = c.size * (c.n_heads / c.n_sharing);
    queries_.resize(static_cast<std::size_t>(c.size * c.n_heads));
    for (float& value : queries_) value = any(3);
    for (auto* rows : {&keys_, &values_}) {
      rows->resize(static_cast<std::size_t>(row * c.n_cells / 8));
      for (Line& line : *rows) {
        for (std::uint16_t& half : line.halves) half = any_half();
      }
    }
    sinks_.resize(static_cast<std::size_t>(c.n_heads));
    for (float& sink : sinks_) sink = any(9);
    fill_mask(c);
    task_ = {.queries = queries_.data(),
             .query_stride = c.size,
             .keys = heads(keys_, row, c.size),
             .values = heads(values_, row, c.size),
             .mask = mask_.data(),
             .sinks = c.has_sinks ? sinks_.data() : nullptr,
             .head_size = c.size,
             .n_heads = c.n_heads,
             .n_sharing = c.n_sharing,
             .n_cells = c.n_cells,
             .n_parts = c.n_parts,
             .scale = 1 / std::sqrt(static_cast<float>(c.size)),
             .cap = c.cap};
    out_.assign(queries_.size(), NAN);
    rounded_.resize(static_cast<std::size_t>(q8_blocks(c.size * c.n_heads)));
    std::memset(rounded_.data(), 0x5a, rounded_.size() * sizeof(Q8Block));
    task_.out = out_.data();
    task_.rounded = rounded_.data();
  }

  HeadAttention& task() { return task_; }
  const std::vector<float>& out() const { return out_; }
  const std::vector<Q8Block>& rounded() const { return rounded_; }

 private:
  struct alignas(16) Line {
    std::uint16_t halves[8];
  };

  static CachedHeads heads(const std::vector<Line>& rows, int row, int size) {
    return {.data = reinterpret_cast<const std::uint8_t*>(rows.data()),
            .stride = 2 * row,
            .head_stride = 2 * size};
  }
  float any(float most) { return std::uniform_real_distribution<float>(-most, most)(random_); }
  // Below 8 with a few large ones, zeros of both signs and subnormal ones; never infinite.
  std::uint16_t any_half() {
    const auto bits = static_cast<std::uint16_t>(random_());
    const auto sign = static_cast<std::uint16_t>(bits & 0x8000U);
    if (bits % 61 == 0) return sign;
    if (bits % 59 == 0) return static_cast<std::uint16_t>(bits & 0x83ffU);
    return static_cast<std::uint16_t>(sign | (0x2c00U + (random_() % 0x1c00U)));
  }
  void fill_mask(const Case& c) {
    mask_.assign(static_cast<std::size_t>(c.n_cells), 0);
    for (int i = 0; i < c.n_cells && c.shown != Case::kAll; ++i) {
      const bool shown = c.shown == Case::kFew ? i < 5 : i / 32 % 3 != 1 && random_() % 4 != 0;
      if (!shown) mask_[static_cast<std::size_t>(i)] = 0xfc00;
    }
    mask_[3] = 0;
    // Neither hidden nor shown as it is.
    if (c.shown != Case::kFew) mask_[static_cast<std::size_t>(c.n_cells / 2)] = 0xbc00;
  }

  std::mt19937 random_;
  std::vector<float> queries_, sinks_, out_;
  std::vector<Line> keys_, values_;
  std::vector<std::uint16_t> mask_;
  std::vector<Q8Block> rounded_;
  HeadAttention task_;
};

void attend(const HeadAttention& task) {
  if (task.head_size == 64) return attend_on_host<64, false>(task);
  if (task.head_size == 256) return attend_on_host<256, false>(task);
  return task.cap != 0 ? attend_on_host<128, true>(task) : attend_on_host<128, false>(task);
}

void check(const Case& c, unsigned seed) {
  Attention attention(c, seed);
  const HeadAttention& task = attention.task();
  CHECK_EQ(why_no_head_attention(task), std::string());
  attend(task);
  std::vector<float> expected;
  GgmlAttention ggml(task);
  for (int head = 0; head < c.n_heads; ++head) {
    for (const float value : ggml.head(head)) expected.push_back(value);
  }
  int n_other = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    n_other += mat_vec::as_bits(expected[i]) == mat_vec::as_bits(attention.out()[i]) ? 0 : 1;
    CHECK(std::isfinite(expected[i]));
  }
  CHECK_EQ(n_other, 0);
  expected.resize(attention.rounded().size() * kQ8Values, 0.0F);
  for (std::size_t i = 0; i < attention.rounded().size(); ++i) {
    Q8Block block;
    round_values(expected.data() + i * kQ8Values, &block);
    CHECK_EQ(std::memcmp(&block, &attention.rounded()[i], sizeof block), 0);
  }
}

TEST(heads_of_each_size) {
  check({.size = 64}, 1);
  check({.size = 128}, 2);
  check({.size = 256, .n_heads = 1, .n_sharing = 1}, 3);
}

TEST(windows_and_parts) {
  for (const int n_cells : {256, 768, 1024}) {
    for (const int n_parts : {1, 2, 3, 5, 16}) {
      check({.n_heads = 3, .n_sharing = 3, .n_cells = n_cells, .n_parts = n_parts},
            static_cast<unsigned>(n_cells + n_parts));
    }
  }
}

TEST(what_is_hidden_is_left_out_or_not) {
  check({.size = 128, .n_cells = 768, .n_parts = 3, .shown = Case::kFew}, 4);
  check({.size = 128, .n_cells = 768, .n_parts = 2, .shown = Case::kAll}, 5);
}

TEST(heads_that_share_and_heads_that_do_not) {
  check({.n_heads = 5, .n_sharing = 1}, 6);
  check({.n_heads = 6, .n_sharing = 3}, 7);
  check({.n_heads = 14, .n_sharing = 7}, 8);
}

TEST(sinks_and_caps) {
  check({.has_sinks = true}, 9);
  check({.n_cells = 512, .n_parts = 4, .has_sinks = true, .shown = Case::kFew}, 10);
  check({.size = 128, .cap = 20}, 11);
}

TEST(floats_alone_and_the_rounded_row_alone) {
  Attention both({}, 12);
  attend(both.task());
  Attention floats({}, 12);
  floats.task().rounded = nullptr;
  attend(floats.task());
  CHECK(floats.out() == both.out());
  Attention rounded({}, 12);
  rounded.task().out = nullptr;
  attend(rounded.task());
  CHECK(std::isnan(rounded.out()[0]));
  CHECK_EQ(std::memcmp(rounded.rounded().data(), both.rounded().data(),
                       both.rounded().size() * sizeof(Q8Block)),
           0);
}

TEST(what_it_refuses) {
  Attention attention({}, 13);
  HeadAttention& task = attention.task();
  const auto refuses = [&](const auto& change) {
    const HeadAttention before = task;
    change();
    CHECK(!why_no_head_attention(task).empty());
    task = before;
  };
  refuses([&] { task.head_size = 96; });
  refuses([&] { task.cap = 30; });
  refuses([&] { task.n_heads = kAttentionHeadsMost + 1; });
  refuses([&] { task.n_cells = 192; });
  refuses([&] { task.n_cells = kAttentionCellsMost + 256; });
  refuses([&] { task.keys.stride += 8; });
  refuses([&] { task.values.data += 2; });
  CHECK_EQ(why_no_head_attention(task), std::string());
}

}  // namespace
}  // namespace head_attention_test
