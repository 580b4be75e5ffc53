// A warp of GPU threads on one CPU thread, and the names by which kernels' code asks for it: for
// headers of kernels that hang on nothing else.
#pragma once

#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "fibers.h"

namespace unpaced::test {

class HostWarp {
 public:
  static constexpr int kLanes = 32;

  // Runs body(lane) for each lane; `first`: the number of the warp's first thread in its block.
  void run(unsigned first, const std::function<void(int)>& body) {
    current_ = this;
    first_ = first;
    fibers_.run([&](int lane) {
      here_ = lane;
      body(lane);
    });
  }

  static unsigned thread() { return current_->first_ + static_cast<unsigned>(current_->here_); }

  // What lane `from` of the warp gave.
  template <class Value>
  static Value shuffle(Value value, int from) {
    HostWarp& warp = *current_;
    const int here = warp.here_;
    std::memcpy(&warp.given_[here], &value, sizeof value);
    warp.wait(here);
    Value taken;
    std::memcpy(&taken, &warp.given_[from], sizeof taken);
    warp.wait(here);
    return taken;
  }
  static int lane() { return current_->here_; }
  // Until all lanes are there.
  static void meet() { current_->wait(lane()); }

 private:
  void wait(int here) {
    barrier_.wait(fibers_);
    here_ = here;
  }

  static inline HostWarp* current_ = nullptr;

  int here_ = 0;  // the lane that runs
  unsigned first_ = 0;
  std::uint32_t given_[kLanes] = {};
  Fibers fibers_{kLanes};
  FiberBarrier barrier_{kLanes};
};

struct ThreadIndex {
  unsigned x;
};

}  // namespace unpaced::test

#define __host__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define threadIdx (::unpaced::test::ThreadIndex{::unpaced::test::HostWarp::thread()})

inline unpaced::test::ThreadIndex gridDim = {1};
inline void __syncwarp() { ::unpaced::test::HostWarp::meet(); }
template <class Value>
Value __ldcg(const Value* at) {
  return *at;
}
template <class Value>
Value __shfl_sync(unsigned, Value value, int from) {
  return ::unpaced::test::HostWarp::shuffle(value, from % 32);
}
template <class Value>
Value __shfl_xor_sync(unsigned, Value value, int across) {
  return ::unpaced::test::HostWarp::shuffle(value, ::unpaced::test::HostWarp::lane() ^ across);
}

struct half {
  ggml_fp16_t bits = 0;
  half() = default;
  half(float value) : bits(ggml_fp32_to_fp16(value)) {}
  half& operator=(float value) {
    bits = ggml_fp32_to_fp16(value);
    return *this;
  }
};
using __half = half;
struct half2 {
  half low, high;
};
struct float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline half2 make_half2(float low, float high) { return {half(low), half(high)}; }
inline float __half2float(half value) { return ggml_fp16_to_fp32(value.bits); }
inline float __low2float(half2 both) { return __half2float(both.low); }
inline half __float2half(float value) { return half(value); }
inline half __int2half_rn(int value) { return half(static_cast<float>(value)); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __uint_as_float(std::uint32_t bits) {
  float made;
  std::memcpy(&made, &bits, sizeof made);
  return made;
}
// Byte i of the result is the one of the eight that the selector's digit i names.
inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{high} << 32U | low;
  std::uint32_t made = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const auto byte = static_cast<std::uint8_t>(both >> (8 * (selector >> (4 * i) & 7U)));
    made |= std::uint32_t{byte} << (8 * i);
  }
  return made;
}
inline half __ushort_as_half(unsigned short bits) {
  half made;
  made.bits = bits;
  return made;
}
inline half2 __half2half2(half both) { return {both, both}; }
inline half2 __low2half2(half2 of) { return {of.low, of.low}; }
inline half2 __high2half2(half2 of) { return {of.high, of.high}; }
// Sums and products of two F16 numbers are exact in F32, and rounded once.
inline half2 __hmul2(half2 a, half2 b) {
  return {half(__half2float(a.low) * __half2float(b.low)),
          half(__half2float(a.high) * __half2float(b.high))};
}
inline half2 __hsub2(half2 a, half2 b) {
  return {half(__half2float(a.low) - __half2float(b.low)),
          half(__half2float(a.high) - __half2float(b.high))};
}
inline half2 __hneg2(half2 a) {
  a.low.bits ^= 0x8000U;
  a.high.bits ^= 0x8000U;
  return a;
}
