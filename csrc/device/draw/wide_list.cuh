// A list of candidates in global memory and what sorts, filters and counts it. Device code of
// sample_kernels.cu.
#pragma once

#include "device/draw/row_keys.cuh"
#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// As Candidates (sampling/candidates.h). Every thread of the team holds the same.
struct WideList {
  Item* items;
  Item* spare;  // as long
  std::int32_t size;
  bool sorted;
  bool by_token;
  bool knows_best;
  float best;  // the greatest logit, if it is known
};

// A warp's part of a list: each has a run of its own, in the order of the warps, so that
// the order of equal keys can be kept.
struct WarpRun {
  std::int32_t begin;
  std::int32_t end;
};

__device__ inline WarpRun warp_run(const Team& team, std::int32_t n) {
  const std::int32_t length = (n + team.n_warps() * 32 - 1) / (team.n_warps() * 32) * 32;
  const std::int32_t begin = min(n, team.warp() * length);
  return {begin, min(n, begin + length)};
}

// Lanes of the warp that are in and have the same 8-bit digit.
__device__ inline unsigned lanes_of_digit(std::uint32_t digit, bool in) {
  unsigned peers = __ballot_sync(kAllLanes, in);
#pragma unroll
  for (int bit = 0; bit < 8; ++bit) {
    const bool is_set = (digit >> bit & 1U) != 0U;
    const unsigned lanes = __ballot_sync(kAllLanes, is_set);
    peers &= is_set ? lanes : ~lanes;
  }
  return peers;
}

// A digit of an item's key: its token or its logit.
struct Digit {
  std::int32_t shift;
  bool by_token;

  __device__ std::uint32_t of(const Item& item) const {
    const std::uint32_t key =
        by_token ? static_cast<std::uint32_t>(item.token) : descending_key(item.logit);
    return key >> shift & static_cast<std::uint32_t>(kRadixBuckets - 1);
  }
};

// One warp counts the digits of its run into `mine`.
__device__ inline void count_digits(const WideList& c, const WarpRun& run, const Digit& digit,
                                    std::uint32_t* mine) {
  for (std::int32_t i = lane(); i < kRadixBuckets; i += 32) mine[i] = 0;
  __syncwarp();
#pragma unroll 1
  for (std::int32_t base = run.begin; base < run.end; base += 32) {
    const bool in = base + lane() < run.end;
    const std::uint32_t item_digit = in ? digit.of(c.items[base + lane()]) : 0U;
    const unsigned peers = lanes_of_digit(item_digit, in);
    if (in && (peers & ((1U << lane()) - 1U)) == 0U) {
      mine[item_digit] += static_cast<std::uint32_t>(__popc(peers));
    }
    __syncwarp();
  }
}

// Where each warp's items of a digit begin among the block's, in place of how many they are.
// Returns how many the block has. One thread a digit.
__device__ inline std::uint32_t begin_in_block(std::uint32_t* counts, std::int32_t digit) {
  std::uint32_t n_block = 0;
#pragma unroll
  for (std::int32_t warp = 0; warp < kThreads / 32; ++warp) {
    const std::uint32_t n = counts[warp * kRadixBuckets + digit];
    counts[warp * kRadixBuckets + digit] = n_block;
    n_block += n;
  }
  return n_block;
}

// Of a digit's items, in all blocks and in those before this one.
struct DigitCount {
  std::uint32_t before;
  std::uint32_t all;
};

__device__ inline DigitCount count_in_list(const Team& team, std::int32_t digit) {
  DigitCount count{};
  for (std::int32_t block = 0; block < team.n_blocks; ++block) {
    const std::uint32_t n = team_room().scratch.histogram[block * kRadixBuckets + digit];
    count.before += block < team.rank ? n : 0U;
    count.all += n;
  }
  return count;
}

// Adds to begin_in_block() where the block's items of a digit begin in the list: an exclusive
// prefix over the digits. 256 threads, eight warps, have one each; the whole block calls.
__device__ inline void begin_in_list(std::uint32_t* counts, std::int32_t digit, bool has_digit,
                                     const DigitCount& count) {
  std::uint32_t sum = count.all;
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::uint32_t below = __shfl_up_sync(kAllLanes, sum, offset);
    if (lane() >= offset) sum += below;
  }
  if (has_digit && lane() == 31) team_room().reduction[digit / 32] = sum;
  __syncthreads();
  if (has_digit) {
    std::uint32_t base = sum - count.all + count.before;
    for (std::int32_t warp = 0; warp < digit / 32; ++warp) {
      base += static_cast<std::uint32_t>(team_room().reduction[warp]);
    }
#pragma unroll
    for (std::int32_t warp = 0; warp < kThreads / 32; ++warp) {
      counts[warp * kRadixBuckets + digit] += base;
    }
  }
  __syncthreads();
}

// One warp moves the items of its run to where `mine` says, in their order.
__device__ inline void move_items(const WideList& c, const WarpRun& run, const Digit& digit,
                                  std::uint32_t* mine) {
#pragma unroll 1
  for (std::int32_t base = run.begin; base < run.end; base += 32) {
    const std::int32_t i = base + lane();
    const bool in = i < run.end;
    const Item item = in ? c.items[i] : Item{0.0F, 0};
    const std::uint32_t item_digit = digit.of(item);
    const unsigned peers = lanes_of_digit(item_digit, in);
    const unsigned below = peers & ((1U << lane()) - 1U);
    std::uint32_t at = 0;
    if (in) at = mine[item_digit] + static_cast<std::uint32_t>(__popc(below));
    __syncwarp();
    if (in && below == 0U) mine[item_digit] += static_cast<std::uint32_t>(__popc(peers));
    __syncwarp();
    if (in) c.spare[at] = item;
  }
}

// One stable counting pass over a digit of the items' keys: tokens or logits. Nothing is moved if
// all digits are the same. The whole team; ends with a sync().
//
//   phase           threads        works on              then
//   count_digits    each warp      its row of `counts`   __syncthreads()
//   begin_in_block  one a digit    its column            sync(): every block's histogram is there
//   count_in_list   one a digit    the histograms        __syncthreads_or(): is there one digit?
//   begin_in_list   one a digit    its column            __syncthreads()
//   move_items      each warp      its row, c.spare      sync(): the list is c.spare
__device__ __noinline__ void radix_pass(Team& team, WideList& c, std::int32_t shift,
                                        bool by_token) {
  static_assert(kThreads / 32 * kRadixBuckets * sizeof(std::uint32_t) <=
                kRoom * sizeof(std::uint64_t));
  auto* counts = reinterpret_cast<std::uint32_t*>(team_room().words);  // a row a warp
  std::uint32_t* mine = counts + threadIdx.x / 32 * kRadixBuckets;
  const WarpRun run = warp_run(team, c.size);
  const Digit of_item{shift, by_token};
  count_digits(c, run, of_item, mine);
  __syncthreads();
  const auto digit = static_cast<std::int32_t>(threadIdx.x);  // this thread's
  const bool has_digit = digit < kRadixBuckets;
  if (has_digit) {
    team_room().scratch.histogram[team.rank * kRadixBuckets + digit] =
        begin_in_block(counts, digit);
  }
  team.sync();
  const DigitCount count = has_digit ? count_in_list(team, digit) : DigitCount{};
  const bool is_only = has_digit && count.all == static_cast<std::uint32_t>(c.size);
  if (__syncthreads_or(is_only ? 1 : 0) == 0) {
    begin_in_list(counts, digit, has_digit, count);
    move_items(c, run, of_item, mine);
    Item* moved = c.spare;
    c.spare = c.items;
    c.items = moved;
  }
  team.sync();
}

// sort_by_logit() of a short list, by one block.
__device__ inline void sort_short(WideList& c) {
  TeamRoom& room = team_room();
  for (std::int32_t i = threadIdx.x; i < c.size; i += kThreads) {
    room.words[i] = key_of(c.items[i].logit, c.items[i].token);
  }
  sort_keys(room.words, c.size);
  for (std::int32_t i = threadIdx.x; i < c.size; i += kThreads) {
    c.items[i] = {logit_of(room.words[i]), token_of(room.words[i])};
  }
  __syncthreads();
}

// sort_by_logit() of the list.
__device__ __noinline__ void sort_list(Team& team, WideList& c) {
  if (c.sorted) return;
  constexpr std::int32_t kShort = 2048;
  constexpr std::int32_t kTokenBits = 24;
  if (team.n_blocks == 1 && c.size <= kShort) {
    sort_short(c);
  } else {
    const std::int32_t n_token = c.by_token ? 0 : kTokenBits;  // ties stay in this order
    for (std::int32_t shift = 0; shift < n_token + 32; shift += 8) {
      const bool by_token = shift < n_token;
      radix_pass(team, c, by_token ? shift : shift - n_token, by_token);
    }
  }
  c.sorted = true;
  c.by_token = false;
}

// Keeps the items that `stays` accepts, in their order.
template <class Stays>
__device__ void filter_list(Team& team, WideList& c, const Stays& stays) {
  const WideScratch& s = team_room().scratch;
  const std::int32_t n_pages = (c.size + kPage - 1) / kPage;
  for (std::int32_t page = team.warp(); page < n_pages; page += team.n_warps()) {
    std::int32_t n = 0;
    for (std::int32_t i = page * kPage + lane(); i < (page + 1) * kPage; i += 32) {
      n += __popc(__ballot_sync(kAllLanes, i < c.size && stays(c.items[i])));
    }
    if (lane() == 0) s.page_count[page] = n;
  }
  team.sync();
  const auto add = [](std::int32_t a, std::int32_t b) { return a + b; };
  std::int32_t total = 0;
  for (std::int32_t i = lane(); i < n_pages; i += 32) total += s.page_count[i];
  total = warp_reduce(total, add);
  for (std::int32_t page = team.warp(); page < n_pages; page += team.n_warps()) {
    std::int32_t at = 0;
    for (std::int32_t i = lane(); i < page; i += 32) at += s.page_count[i];
    at = warp_reduce(at, add);
    for (std::int32_t i = page * kPage + lane(); i < (page + 1) * kPage; i += 32) {
      const bool in = i < c.size && stays(c.items[i]);
      const unsigned lanes = __ballot_sync(kAllLanes, in);
      if (in) c.spare[at + __popc(lanes & ((1U << lane()) - 1U))] = c.items[i];
      at += __popc(lanes);
    }
  }
  Item* kept = c.spare;
  c.spare = c.items;
  c.items = kept;
  c.size = total;
  team.sync();
}

template <class Accepts>
__device__ std::int32_t count_list(Team& team, const WideList& c, const Accepts& accepts) {
  std::int32_t n = 0;
  for (std::int32_t i = team.thread(); i < c.size; i += team.n_threads()) {
    n += accepts(i) ? 1 : 0;
  }
  return team_sum(team, n);
}

// The first index that is accepted, or the size.
template <class Accepts>
__device__ std::int32_t first_in_list(Team& team, const WideList& c, const Accepts& accepts) {
  std::int32_t first = c.size;
  for (std::int32_t i = team.thread(); i < c.size && first == c.size; i += team.n_threads()) {
    if (accepts(i)) first = i;
  }
  return team_min(team, first);
}

// Every thread changes the items of its share. `change(item)`.
template <class Change>
__device__ void for_each(Team& team, const WideList& c, const Change& change) {
  for (std::int32_t i = team.thread(); i < c.size; i += team.n_threads()) change(c.items[i]);
  team.sync();
}

__device__ __noinline__ float list_max(Team& team, WideList& c) {
  if (c.knows_best) return c.best;
  float best = -kInfinity;
  if (c.sorted) {
    best = c.items[0].logit;
  } else {
    for (std::int32_t i = team.thread(); i < c.size; i += team.n_threads()) {
      best = fmaxf(best, c.items[i].logit);
    }
    best = team_max(team, best, -kInfinity);
  }
  c.knows_best = true;
  c.best = best;
  return best;
}

}  // namespace unpaced
