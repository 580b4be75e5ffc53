// The place of a mat-vec's block on the host (device/kernels/mat_vec/block/product.h): fibers are
// its threads, fetched weights are copied at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "device/kernels/mat_vec/block/product.h"
#include "fibers.h"

namespace unpaced::test {

// As mbarrier: `n` arrivals make a phase complete.
struct HostStage {
  int n = 1;
  int left = 1;
  std::uint32_t phase = 0;

  void arrive() {
    if (--left > 0) return;
    left = n;
    phase ^= 1;
  }
  void await(std::uint32_t parity, Fibers& fibers) const {
    while (phase == parity) fibers.yield();
  }
};

// What the threads of a block share.
struct HostBlock {
  static constexpr int kThreads = 256;
  static constexpr int kProducerThreads = 32;

  // `n_beside`: threads of warps that do not multiply.
  HostBlock(Fibers& threads, int block, int n_blocks, std::size_t shared_bytes,
            int n_beside = kProducerThreads)
      : number(block),
        count(n_blocks),
        fibers(threads),
        // What nobody wrote is nobody's: it would show.
        memory((shared_bytes + 15) / 16,
               Line{{0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}}),
        everybody(kThreads + n_beside),
        all(kThreads),
        warps(static_cast<std::size_t>((kThreads + n_beside) / 32), FiberBarrier(32)),
        lanes(warps.size(), std::vector<float>(32)) {}

  struct alignas(16) Line {
    std::uint32_t words[4];
  };

  int number;
  int count;
  Fibers& fibers;
  std::vector<Line> memory;
  FiberBarrier everybody;  // with a producer
  FiberBarrier all;
  HostStage fetched[8][8], free[8][8];
  std::vector<FiberBarrier> warps;
  std::vector<FiberBarrier> teams;
  std::vector<std::vector<float>> lanes;
  bool earlier_ended = false;
};

template <bool kProducer>
class HostPlace {
 public:
  static constexpr bool kHasProducer = kProducer;
  static constexpr int kTeams = HostBlock::kThreads / 32;
  [[nodiscard]] bool is_producer() const { return thread_ >= HostBlock::kThreads; }
  HostPlace(HostBlock& block, int thread) : block_(block), thread_(thread) {}

  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int n_threads() const { return HostBlock::kThreads; }
  [[nodiscard]] int block() const { return block_.number; }
  [[nodiscard]] int n_blocks() const { return block_.count; }
  [[nodiscard]] std::uint8_t* shared() const {
    return reinterpret_cast<std::uint8_t*>(block_.memory.data());
  }

  void prepare_ring(int, int, int rows, int team, int readers = 1) {
    if (thread_ == 0) {
      for (auto& stages : block_.fetched) {
        for (HostStage& stage : stages) stage.n = stage.left = rows;
      }
      for (auto& stages : block_.free) {
        for (HostStage& stage : stages) stage.n = stage.left = readers;
      }
      block_.teams.assign(static_cast<std::size_t>(HostBlock::kThreads / 32 / team),
                          FiberBarrier(32 * team));
    }
    (kProducer ? block_.everybody : block_.all).wait(block_.fibers);
  }
  void let_later_kernels_start(bool) {}
  void end_writes(bool) {}
  void await_earlier_kernels() { block_.earlier_ended = true; }

  void meet_block() { block_.all.wait(block_.fibers); }
  template <int kTeam>
  void meet_team(int team) {
    block_.teams[static_cast<std::size_t>(team)].wait(block_.fibers);
  }
  template <int kTeam>
  void await_stage(int team, std::int32_t stage, std::uint32_t parity) {
    if constexpr (kProducer)
      block_.fetched[team][stage].await(parity, block_.fibers);
    else
      meet_team<kTeam>(team);
  }

  void await_free(int team, std::int32_t stage, std::uint32_t parity) {
    block_.free[team][stage].await(parity, block_.fibers);
  }
  void free_stage(int team, std::int32_t stage) { block_.free[team][stage].arrive(); }
  // Fibers of a warp need not go in step: each goes by itself.
  static bool any(bool one) { return one; }
  template <int kRows, int, bool>
  void fetch_rows(bool, int lane, std::int32_t stage, std::int32_t n_stages,
                  const std::uint8_t* from, std::int32_t bytes, std::uint8_t* rings,
                  std::int32_t slot_bytes) {
    const int team = lane / kRows;
    copy_lines(from, bytes,
               rings + ((team * n_stages + stage) * kRows + lane % kRows) * slot_bytes);
    block_.fetched[team][stage].arrive();
  }

  static constexpr bool kReadsInPlace = false;

  template <int kRows, int kTeam, bool, class To>
  void fetch(int, int warp, int lane, std::int32_t, std::int32_t bytes, const std::uint8_t* from,
             To to) {
    if (warp == 0 && lane < kRows) copy_lines(from, bytes, to(lane));
  }
  [[nodiscard]] const std::uint8_t* fetched(const std::uint8_t* row, std::int32_t offset,
                                            const std::uint8_t* slot) const {
    return slot +
           ((reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(offset)) & 15);
  }

  float shuffle_xor(float value, int mask) {
    auto& lanes = block_.lanes[static_cast<std::size_t>(thread_ / 32)];
    auto& warp = block_.warps[static_cast<std::size_t>(thread_ / 32)];
    lanes[static_cast<std::size_t>(thread_ % 32)] = value;
    warp.wait(block_.fibers);
    const float got = lanes[static_cast<std::size_t>((thread_ % 32) ^ mask)];
    warp.wait(block_.fibers);
    return got;
  }

  float first_of(float value, int width) {
    auto& lanes = block_.lanes[static_cast<std::size_t>(thread_ / 32)];
    auto& warp = block_.warps[static_cast<std::size_t>(thread_ / 32)];
    lanes[static_cast<std::size_t>(thread_ % 32)] = value;
    warp.wait(block_.fibers);
    const float got = lanes[static_cast<std::size_t>(thread_ % 32 / width * width)];
    warp.wait(block_.fibers);
    return got;
  }

  // Something that depends on both: the device's functions are the device's.
  static float glu(float up, float gate, const mat_vec::Task&) {
    return mat_vec::product(up, mat_vec::sum(gate, 0.5F));
  }

 protected:
  // Whole lines of 16 bytes, as the device's copies.
  static void copy_lines(const std::uint8_t* from, std::int32_t bytes, std::uint8_t* to) {
    const auto before = static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(from) & 15);
    std::memcpy(to, from - before, static_cast<std::size_t>((before + bytes + 15) & ~15));
  }

  HostBlock& block_;
  int thread_;
};

}  // namespace unpaced::test
