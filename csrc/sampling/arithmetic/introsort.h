// A comparison sort that works on host and device.
//
// It makes the comparisons and exchanges of libstdc++'s std::sort in the same order (median of
// three, unguarded partition, one final insertion sort), because elements that compare equal then
// end up where llama.cpp has them: typical-p draws from an array that was sorted by a score with
// ties. Only past the recursion limit (adversarial input) it falls back to a plain heap sort.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/host_device.h"

namespace unpaced {
namespace introsort_detail {

inline constexpr std::int32_t kInsertionLimit = 16;

template <class T>
UNPACED_HD inline void exchange(T& a, T& b) noexcept {
  const T old = a;
  a = b;
  b = old;
}

template <class T, class Less>
UNPACED_HD void insertion_sort(T* first, std::int32_t begin, std::int32_t end, Less less) noexcept {
  for (std::int32_t i = begin; i < end; ++i) {
    const T value = first[i];
    std::int32_t hole = i;
    for (; hole > 0 && less(value, first[hole - 1]); --hole) first[hole] = first[hole - 1];
    first[hole] = value;
  }
}

template <class T, class Less>
UNPACED_HD void sift_down(T* heap, std::int32_t root, std::int32_t n, Less less) noexcept {
  for (std::int32_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
    if (child + 1 < n && less(heap[child], heap[child + 1])) ++child;
    if (!less(heap[root], heap[child])) return;
    exchange(heap[root], heap[child]);
    root = child;
  }
}

template <class T, class Less>
UNPACED_HD void heap_sort(T* data, std::int32_t n, Less less) noexcept {
  for (std::int32_t i = n / 2 - 1; i >= 0; --i) sift_down(data, i, n, less);
  for (std::int32_t end = n - 1; end > 0; --end) {
    exchange(data[0], data[end]);
    sift_down(data, 0, end, less);
  }
}

// Moves the median of the second, the middle and the last element to the front.
template <class T, class Less>
UNPACED_HD void median_to_front(T* data, std::int32_t n, Less less) noexcept {
  T& a = data[1];
  T& b = data[n / 2];
  T& c = data[n - 1];
  if (less(a, b)) {
    exchange(data[0], less(b, c) ? b : (less(a, c) ? c : a));
  } else {
    exchange(data[0], less(a, c) ? a : (less(b, c) ? c : b));
  }
}

// Partitions data[1, n) around data[0]; returns where the upper part begins. The median guards both
// scans.
template <class T, class Less>
UNPACED_HD std::int32_t partition(T* data, std::int32_t n, Less less) noexcept {
  std::int32_t low = 1;
  std::int32_t high = n;
  for (;;) {
    while (less(data[low], data[0])) ++low;
    --high;
    while (less(data[0], data[high])) --high;
    if (low >= high) return low;
    exchange(data[low], data[high]);
    ++low;
  }
}

}  // namespace introsort_detail

// Sorts data[0, n) ascending by `less`, a strict weak order. Not stable. O(n log n).
template <class T, class Less>
UNPACED_HD void introsort(T* data, std::int32_t n, Less less) noexcept {
  namespace detail = introsort_detail;
  struct Range {
    std::int32_t begin, end, depth;
  };
  std::int32_t depth = 0;
  for (std::int32_t rest = n; rest > 1; rest >>= 1) depth += 2;
  // One entry a level of recursion, at most 2 * log2(n). The device sorts 1024 candidates at most,
  // and pays for the array once for every thread that it could run.
#if defined(__CUDA_ARCH__)
  Range stack[24];
#else
  Range stack[64];
#endif
  std::int32_t n_stack = 0;
  Range range{0, n, depth};
  for (;;) {
    while (range.end - range.begin > detail::kInsertionLimit) {
      T* base = data + range.begin;
      const std::int32_t size = range.end - range.begin;
      if (range.depth == 0) {
        detail::heap_sort(base, size, less);
        break;
      }
      --range.depth;
      detail::median_to_front(base, size, less);
      const std::int32_t cut = range.begin + detail::partition(base, size, less);
      stack[n_stack++] = {cut, range.end, range.depth};
      range.end = cut;
    }
    if (n_stack == 0) break;
    range = stack[--n_stack];
  }
  detail::insertion_sort(data, 1, n, less);
}

}  // namespace unpaced
