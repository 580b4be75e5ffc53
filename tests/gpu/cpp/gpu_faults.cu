// Faults of a GPU, made in the process that loads this library: it shares the context with the
// engine. Loaded by tests/gpu/faulty_server.py; its CUDA runtime is its own.
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 1024;
// Two blocks fill a multiprocessor; the others take the places that running kernels give up.
constexpr int kBlocksEach = 8;

__device__ unsigned long long end_ns;

__device__ unsigned long long now_ns() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void set_end(unsigned long long length_ns) { end_ns = now_ns() + length_ns; }

// Bounded, whatever becomes of the process that asked for it.
__global__ void __launch_bounds__(kThreads, 2) occupy() {
  while (now_ns() < *static_cast<volatile unsigned long long*>(&end_ns)) __nanosleep(1000);
}

__global__ void hang(unsigned long long length_ns) {
  const unsigned long long end = now_ns() + length_ns;
  while (now_ns() < end) __nanosleep(1000);
}

__global__ void write_nowhere() { *reinterpret_cast<volatile int*>(8) = 1; }

cudaStream_t urgent_stream() {
  int least = 0;
  int greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  return stream;
}

}  // namespace

// Nothing else gets a place on the GPU for so long. Returns before, with a CUDA status.
extern "C" int gpu_occupy(unsigned milliseconds) {
  int n_multiprocessors = 0;
  cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const cudaStream_t stream = urgent_stream();
  set_end<<<1, 1, 0, stream>>>(milliseconds * 1000000ULL);
  occupy<<<n_multiprocessors * kBlocksEach, kThreads, 0, stream>>>();
  return cudaGetLastError();
}

// A kernel in the stream, a cudaStream_t, that takes so long. Returns before, with a CUDA status.
extern "C" int gpu_hang(void* stream, unsigned milliseconds) {
  hang<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(milliseconds * 1000000ULL);
  return cudaGetLastError();
}

// An illegal write: every CUDA call of the process fails from here on. Returns a CUDA status.
extern "C" int gpu_break() {
  const cudaStream_t stream = urgent_stream();
  write_nowhere<<<1, 1, 0, stream>>>();
  return cudaStreamSynchronize(stream);
}
