// CUDA memory and errors as C++ sees them: owners that free, a check that throws.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace unpaced {

// Throws what cuda_check() throws.
[[noreturn]] void throw_cuda_error(cudaError_t status, const char* what);

// Throws an exception that names the call, with CUDA's own text: EngineLost where the device or its
// context is of no use any more, std::runtime_error where only this call failed.
inline void cuda_check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw_cuda_error(status, what);
}

// cudaMemset() and a copy from the host that are over when they return. CUDA does both on a stream
// of its own, with which the streams of ggml and ours are not ordered: a kernel that is enqueued
// right after could still read what was there before, or have its results written over.
inline void fill_now(void* to, int byte, std::size_t n_bytes) {
  cuda_check(cudaMemset(to, byte, n_bytes), "cudaMemset");
  cuda_check(cudaStreamSynchronize(nullptr), "cudaMemset");
}
inline void copy_up_now(void* to, const void* from, std::size_t n_bytes) {
  cuda_check(cudaMemcpy(to, from, n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  cuda_check(cudaStreamSynchronize(nullptr), "cudaMemcpy");
}

// n elements of plain data in device memory, uninitialised.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t n) : size_(n) {
    cuda_check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)), "cudaMalloc");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// n zeroed elements in pinned host memory that the device can address.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(std::size_t n) : size_(n) {
    cuda_check(cudaHostAlloc(reinterpret_cast<void**>(&data_), n * sizeof(T), cudaHostAllocMapped),
               "cudaHostAlloc");
    auto* bytes = reinterpret_cast<unsigned char*>(data_);
    for (std::size_t i = 0; i < n * sizeof(T); ++i) bytes[i] = 0;
    cuda_check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), data_, 0),
               "cudaHostGetDevicePointer");
  }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] T* device() const noexcept { return device_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  T* device_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace unpaced
