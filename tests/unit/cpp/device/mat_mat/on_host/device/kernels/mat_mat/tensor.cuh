// Tensor cores as products use them (tensor.cuh), a warp's lanes one after the other on the CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "host_warp.h"

namespace unpaced::mat_mat {

inline constexpr float kFloatBase = 12582912.0f;

// What all lanes of a warp bring to an instruction.
struct Fragments {
  std::uint32_t a[32][4], b[32][2];
};
inline Fragments fragments;

template <int kA, int kB>
void bring(const std::uint32_t (&a)[kA], const std::uint32_t (&b)[kB]) {
  const int lane = test::HostWarp::lane();
  std::memcpy(fragments.a[lane], a, sizeof a);
  std::memcpy(fragments.b[lane], b, sizeof b);
  test::HostWarp::meet();
}

inline int byte_of(std::uint32_t word, int i, bool is_signed) {
  const auto byte = static_cast<std::uint8_t>(word >> (8 * i));
  return is_signed ? static_cast<std::int8_t>(byte) : byte;
}

// Rows g and g + 8, columns 2 * t and 2 * t + 1, of lane 4 * g + t: words t of rows are a[0] and
// a[1], words t + 4 a[2] and a[3].
template <int kWords>
void add_products(std::int32_t (&c)[4], bool is_signed) {
  const int lane = test::HostWarp::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    int sum = 0;
    for (int word = 0; word < kWords; ++word) {
      const std::uint32_t a = fragments.a[4 * g + word % 4][i / 2 + word / 4 * 2];
      const std::uint32_t b = fragments.b[4 * (2 * t + i % 2) + word % 4][word / 4];
      for (int k = 0; k < 4; ++k) sum += byte_of(a, k, is_signed) * byte_of(b, k, true);
    }
    c[i] = sum;
  }
  test::HostWarp::meet();
}

struct uint2 {
  std::uint32_t x, y;
};
struct uint4 {
  std::uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};

inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], uint2 b) {
  bring<4, 2>(a, {b.x, b.y});
  std::int32_t sums[4];
  add_products<8>(sums, false);
  for (int i = 0; i < 4; ++i) c[i] = kFloatBase + static_cast<float>(sums[i]);
}
inline void multiply_signed(std::int32_t (&c)[4], const std::uint32_t (&a)[4], uint2 b) {
  bring<4, 2>(a, {b.x, b.y});
  add_products<8>(c, true);
}
inline void multiply_half(std::int32_t (&c)[4], std::uint32_t a0, std::uint32_t a1,
                          std::uint32_t b) {
  bring<2, 1>({a0, a1}, {b});
  add_products<4>(c, true);
}

inline float half_of(std::uint32_t word, int i) {
  return ggml_fp16_to_fp32(static_cast<ggml_fp16_t>(word >> (16 * i)));
}
inline void multiply_scales(float (&c)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  bring<2, 1>(a, {b});
  const int lane = test::HostWarp::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    c[i] = 0;
    for (int k = 0; k < 8; ++k) {
      c[i] += half_of(fragments.a[4 * g + k / 2][i / 2], k % 2) *
              half_of(fragments.b[4 * (2 * t + i % 2) + k / 2][0], k % 2);
    }
  }
  test::HostWarp::meet();
}

inline std::uint32_t word(const std::uint8_t* at) {
  std::uint32_t made;
  std::memcpy(&made, at, sizeof made);
  return made;
}
inline std::uint32_t word_between(const std::uint8_t* at, unsigned shift) {
  return static_cast<std::uint32_t>((std::uint64_t{word(at + 4)} << 32U | word(at)) >> shift);
}

inline std::uint32_t count_arrival(std::uint32_t* counter) { return (*counter)++; }

}  // namespace unpaced::mat_mat
