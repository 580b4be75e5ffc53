// The place of a tile's block on the host (device/kernels/mat_vec/block/tile_work.h).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/mat_vec/block/tile_work.h"
#include "device/kernels/weights/pinned_float.h"
#include "host_block.h"

namespace unpaced::test {

// What the threads of a tile's block share beside HostBlock.
struct HostTile {
  struct Operands {
    float rows[2][2];
    float columns[2];
  };

  using WarpOperands = std::array<Operands, 32>;

  HostStage inputs[2];
  HostStage written, read;
  // Every second product's have a place of their own: who goes on writes beside what others read.
  std::array<std::array<WarpOperands, 2>, HostBlock::kThreads / 32> operands = {};
};

class HostTilePlace : public HostPlace<true> {
 public:
  HostTilePlace(HostBlock& block, HostTile& tile, int thread)
      : HostPlace(block, thread), tile_(tile) {}

  static constexpr int kBeside = HostBlock::kProducerThreads + 32;
  static constexpr int kTeams = 1;

  void prepare_tile(int n_stages) {
    if (thread_ == 0) tile_.written.n = tile_.written.left = mat_vec::kTileQuads;
    prepare_ring(0, n_stages, mat_vec::kTileRows, HostBlock::kThreads / 32, mat_vec::kTileQuads);
  }

  [[nodiscard]] bool is_finisher() const {
    return thread_ >= HostBlock::kThreads + HostBlock::kProducerThreads;
  }

  // As on the device all bytes of a piece make its phase complete.
  void announce_inputs(int half, std::int32_t bytes) {
    tile_.inputs[half].n = tile_.inputs[half].left = bytes / 16;
  }
  void fetch_inputs(int half, const std::uint8_t* from, std::int32_t bytes, std::uint8_t* to) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    for (std::int32_t i = 0; i < bytes / 16; ++i) tile_.inputs[half].arrive();
  }
  void await_inputs(int half, std::uint32_t parity) {
    tile_.inputs[half].await(parity, block_.fibers);
  }

  void free_stage_by_warp(int team, std::int32_t stage, int lane) {
    meet_warp();
    if (lane == 0) free_stage(team, stage);
  }
  void tell_written(int lane) { tell(tile_.written, lane); }
  void await_written(std::uint32_t parity) { tile_.written.await(parity, block_.fibers); }
  void tell_read(int lane) { tell(tile_.read, lane); }
  void await_read(std::uint32_t parity) { tile_.read.await(parity, block_.fibers); }

  // PTX's mma.m16n8k8: lane i brings values 2 * (i % 4) and the next one of rows i / 4 and
  // i / 4 + 8, and of column i / 4.
  void multiply(float (&sums)[4], const std::uint32_t (&rows)[2], std::uint32_t columns) {
    is_second_ = !is_second_;
    auto& operands = tile_.operands[static_cast<std::size_t>(thread_ / 32)][is_second_ ? 1 : 0];
    const int lane = thread_ % 32;
    HostTile::Operands& mine = operands[static_cast<std::size_t>(lane)];
    for (int k = 0; k < 2; ++k) {
      for (int r = 0; r < 2; ++r)
        mine.rows[r][k] = mat_vec::half_value(rows[r] >> (16 * k) & 0xffffU);
      mine.columns[k] = mat_vec::half_value(columns >> (16 * k) & 0xffffU);
    }
    meet_warp();
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4, column = 2 * (lane % 4) + i % 2;
      const HostTile::Operands* a = &operands[static_cast<std::size_t>(4 * row)];
      const HostTile::Operands* b = &operands[static_cast<std::size_t>(4 * column)];
      double sum = 0;
      for (int pair = 0; pair < 4; ++pair, ++a, ++b) {
        for (int k = 0; k < 2; ++k)
          sum += static_cast<double>(a->rows[i / 2][k]) * static_cast<double>(b->columns[k]);
      }
      sums[i] = static_cast<float>(sum);
    }
  }

 private:
  void meet_warp() { block_.warps[static_cast<std::size_t>(thread_ / 32)].wait(block_.fibers); }
  void tell(HostStage& stage, int lane) {
    meet_warp();
    if (lane == 0) stage.arrive();
  }

  HostTile& tile_;
  bool is_second_ = false;
};

}  // namespace unpaced::test
