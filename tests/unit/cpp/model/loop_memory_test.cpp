// What is counted for the GPU's decode loop: graphs of windows and of short prompts, and a limit to
// either.
#include "model/loop_memory.h"

#include "check.h"

namespace loop_memory_test {
namespace {

using namespace unpaced;

std::size_t device_bytes(std::int32_t n_cells, bool has_prompts, std::int32_t n_streams = 1) {
  return loop_memory({.n_layer = 15,
                      .n_vocab = 32000,
                      .n_cells = n_cells,
                      .n_streams = n_streams,
                      .has_prompts = has_prompts})
      .device;
}

// Each number up to eight, then eights.
static_assert(kPromptRows == 7 + 15);
static_assert(prompt_rows(2) == 2 && prompt_rows(8) == 8 && prompt_rows(9) == 16);
static_assert(prompt_rows(16) == 16 && prompt_rows(77) == 80 && prompt_rows(128) == 128);
static_assert(prompt_rows_index(2) == 0 && prompt_rows_index(8) == 6);
static_assert(prompt_rows_index(16) == 7 && prompt_rows_index(128) == kPromptRows - 1);

TEST(every_window_has_a_graph_and_one_for_each_length) {
  const std::size_t graph = device_bytes(512, false) - device_bytes(256, false);
  CHECK(graph > 0);
  CHECK_EQ(device_bytes(512, true) - device_bytes(256, true), graph * (1 + kPromptRows));
  CHECK_EQ(device_bytes(511, true), device_bytes(512, true));
  CHECK_EQ(device_bytes(256, true, 2), device_bytes(512, true));
}

TEST(graphs_have_a_limit) {
  const std::size_t graph = device_bytes(512, false) - device_bytes(256, false);
  const std::size_t beside =
      device_bytes(256, true) - device_bytes(256, false) - kPromptRows * graph;
  CHECK_EQ(device_bytes(1 << 20, true) - device_bytes(1 << 20, false),
           beside + kMaxPromptGraphs * graph);
  CHECK_EQ(device_bytes(1 << 20, false), device_bytes(1 << 20, false, 4));
}

TEST(every_number_of_lanes_has_its_graphs_and_every_lane_its_sampler) {
  const auto device = [](std::int32_t n_cells, std::int32_t n_lanes, std::int32_t n_vocab) {
    return loop_memory({.n_layer = 15, .n_vocab = n_vocab, .n_cells = n_cells, .n_lanes = n_lanes})
        .device;
  };
  const std::size_t graph = device(512, 1, 32000) - device(256, 1, 32000);
  CHECK_EQ(device(512, 4, 32000) - device(256, 4, 32000), 4 * graph);
  // A stream of its own each: one more for blocks of streams.
  const auto streams = [](std::int32_t n_cells, std::int32_t n_lanes) {
    return loop_memory({.n_layer = 15,
                        .n_vocab = 32000,
                        .n_cells = n_cells,
                        .n_streams = 4,
                        .n_lanes = n_lanes})
        .device;
  };
  CHECK_EQ(streams(512, 4) - streams(256, 4), 8 * graph);
  CHECK_EQ(streams(512, 1) - streams(256, 1), 4 * graph);
  const std::size_t token = device(256, 1, 32001) - device(256, 1, 32000);
  CHECK_EQ(device(256, 4, 32001) - device(256, 4, 32000), 4 * token);
}

TEST(crowds_over_a_quantised_cache_copy_a_window_of_it) {
  const auto device = [](std::int32_t n_streams, std::int32_t n_lanes, std::size_t cell) {
    return loop_memory({.n_layer = 15,
                        .n_vocab = 32000,
                        .n_cells = 512,
                        .n_streams = n_streams,
                        .n_lanes = n_lanes,
                        .cell_copy_bytes = cell})
        .device;
  };
  CHECK_EQ(device(1, 4, 1000) - device(1, 4, 0), std::size_t{512'000});
  CHECK_EQ(device(1, 1, 1000), device(1, 1, 0));
  CHECK_EQ(device(4, 4, 1000), device(4, 4, 0));
}

TEST(rows_of_kernels_of_ours_are_kept_rounded) {
  const auto device = [](std::int32_t n_own_rows, std::int32_t n_cells, bool as_alone) {
    return loop_memory({.n_layer = 16,
                        .n_vocab = 32000,
                        .n_cells = n_cells,
                        .n_lanes = 32,
                        .n_own_rows = n_own_rows,
                        .n_embd = 2048,
                        .rows_as_alone = as_alone})
        .device;
  };
  const std::size_t row = device(1, 256, false) - device(0, 256, false);
  // Of a 1B: norm, attention's row and norm with records of halves, 8192 values of the same.
  CHECK(row > std::size_t{(3 * 2048 + 8192) * 15 / 4});
  CHECK_EQ(device(32, 256, true) - device(0, 256, true), 32 * row + 32UL * 2048 * 4 * 2);
  // No more than 64 parts of attention.
  CHECK_EQ(device(32, 1 << 16, true) - device(0, 1 << 16, true), 32 * row + 32UL * 2048 * 4 * 64);
  // Products of more than eight rows, unless these are multiplied by eights.
  CHECK_EQ(device(32, 256, false) - device(0, 256, false), 32 * row + (16UL << 20U));
}

TEST(prompts_have_rows_of_their_own) {
  const auto device = [](std::int32_t n_embd, bool has_prompts) {
    return loop_memory({.n_layer = 16,
                        .n_vocab = 32000,
                        .n_cells = 256,
                        .has_prompts = has_prompts,
                        .n_embd = n_embd})
        .device;
  };
  CHECK_EQ(device(2048, false), device(0, false));
  // Of a 1B: gate and up of 80 rows as floats, at least.
  CHECK(device(2048, true) - device(0, true) > 80UL * 2 * 8192 * sizeof(float));
}

}  // namespace
}  // namespace loop_memory_test
