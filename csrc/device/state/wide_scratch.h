// Device memory of the chain that works on more candidates than a block's shared memory holds.
#pragma once

#include <cstdint>

#include "base/token.h"

namespace unpaced {

inline constexpr std::int32_t kPage = 256;          // elements that one warp adds at a time
inline constexpr std::int32_t kMaxTeamBlocks = 16;  // of the cluster that draws
inline constexpr std::int32_t kRadixBuckets = 256;
inline constexpr std::int32_t kBroadcastWords = 4;
inline constexpr std::int32_t kMassBuckets = 1024;    // of logits, by certain_draw.cuh
inline constexpr std::int32_t kNucleusRoom = 8;       // sums that a block leaves there
inline constexpr std::int32_t kMaxSureListed = 1024;  // tokens among which it draws
inline constexpr std::int32_t kPagePlanBytes = 560;   // of its own growth and its runs'

struct Item {
  float logit;
  TokenId token;
};

// Written by the whole cluster. Plain pointers; DeviceSampler owns the memory.
struct WideScratch {
  Item* items[2];               // n_vocab each
  float* value;                 // n_pages x kPage: exponentials or probabilities, then 0
  float* raw;                   // n_vocab: the row as the model gave it
  double* page_sum;             // n_pages: each page's sum, about
  unsigned char* page_plan;     // n_pages x kPagePlanBytes (ordered_scan.cuh)
  double* page_start;           // n_pages: the running sum before each page, exactly
  std::int32_t* page_count;     // n_pages
  std::uint32_t* histogram;     // kMaxTeamBlocks x kRadixBuckets
  std::uint64_t* partial;       // 2 x kMaxTeamBlocks: of reductions
  std::uint64_t* broadcast;     // kBroadcastWords: what one warp found out for all; then one word
                                // that counts the blocks' arrivals at a grid's barrier
  double* u;                    // 1: the draw's number of the random stream
  double* nucleus_sums;         // kMaxTeamBlocks x kNucleusRoom
  std::uint32_t* nucleus_mass;  // kMaxTeamBlocks x kMassBuckets
  std::uint64_t* listed;        // kMaxSureListed: keys
  std::int32_t* n_listed;       // 1
  std::int32_t* repetition;     // n_vocab: 1 + DRY's longest repetition, 0: none
};

}  // namespace unpaced
