// How long kernels take that only read, each what one phase of a step reads: what a mat-vec of so
// many bytes could take at best.
//
//   read_pace
//
// A line is a size: microseconds a kernel in a chain of them in one CUDA graph, each with bytes of
// its own, as many as do not fit into the card's cache, and the pace as a part of a copy's.
// "after": begins when the kernel ahead has ended, as a launch without more ado does. "early": a
// programmatic launch that asks for its bytes while the kernel ahead still runs, and waits for that
// one's end before its own, since a mat-vec needs its input by then. A block a multiprocessor
// fetches by bulk copies into shared memory, all that is left of it in flight; the fastest of
// several sizes of such a copy.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{768} << 20U;
constexpr int kRounds = 10;
constexpr int kMaxCopies = 64;
// An 8B's phases in Q4_K and Q6_K, then a 1B's: attention's output; Q, K and V; down; gate and up;
// the head.
constexpr double kMegabytes[] = {9.4, 14.2, 33.0, 48.2, 66.1, 430.9,
                                 2.4, 3.5,  9.4,  13.8, 18.9, 215.5};

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__device__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

__device__ void wait_for(std::uint64_t* barrier, std::uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// One thread of a block asks for its part of `from`, `copy` bytes a slot of the ring.
template <bool kEarly>
__global__ void read_part(const std::byte* from, std::size_t n, std::uint32_t copy, int n_slots,
                          int* sink) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();  // no bulk copies
#else
  extern __shared__ __align__(128) std::byte ring[];
  __shared__ std::uint64_t arrived[kMaxCopies];
  if constexpr (kEarly) asm volatile("griddepcontrol.launch_dependents;");
  const std::size_t n_copies = n / copy;
  const std::size_t begin = n_copies * blockIdx.x / gridDim.x;
  const std::size_t end = n_copies * (blockIdx.x + 1) / gridDim.x;
  const auto ask = [&](std::size_t i) {
    const auto slot = static_cast<int>((i - begin) % n_slots);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(&arrived[slot])),
                 "r"(copy)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(ring + static_cast<std::size_t>(slot) * copy)),
        "l"(from + i * copy), "r"(copy), "r"(shared_address(&arrived[slot]))
        : "memory");
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < n_slots; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[i]))
                   : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (std::size_t i = begin; i < end && i < begin + n_slots; ++i) ask(i);
    int seen = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t turn = i - begin;
      wait_for(&arrived[turn % n_slots], static_cast<std::uint32_t>(turn / n_slots) & 1U);
      seen += static_cast<int>(ring[turn % n_slots * copy]);
      if (i + n_slots < end) ask(i + n_slots);
    }
    if constexpr (kEarly) asm volatile("griddepcontrol.wait;" ::: "memory");
    sink[blockIdx.x] += seen;  // what the next one would need
  }
#endif
}

// Microseconds of one run of what `enqueue` puts on the stream, as a CUDA graph.
double graph_us(cudaStream_t stream, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  enqueue();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(executable, stream), "launch");
  check(cudaEventRecord(begin, stream), "event");
  for (int i = 0; i < kRounds; ++i) check(cudaGraphLaunch(executable, stream), "launch");
  check(cudaEventRecord(end, stream), "event");
  check(cudaStreamSynchronize(stream), "run");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "event");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return 1e3 * ms / kRounds;
}

template <bool kEarly>
double read_us(cudaStream_t stream, const std::byte* from, std::size_t n, int* sink, int n_blocks,
               int shared_bytes) {
  const int count = static_cast<int>(std::clamp<std::size_t>(kBytesAtOnce / n, 1, 96));
  double best = 1e9;
  for (std::uint32_t copy = 2048; copy <= 16384; copy *= 2) {
    const std::size_t whole = n / copy * copy;
    const auto most = static_cast<int>((whole / copy + n_blocks - 1) / n_blocks);
    const int n_slots = std::min({kMaxCopies, most, shared_bytes / static_cast<int>(copy)});
    const std::size_t dynamic = static_cast<std::size_t>(n_slots) * copy;
    check(cudaFuncSetAttribute(read_part<kEarly>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(dynamic)),
          "shared memory");
    const double us = graph_us(stream, [&] {
      for (int i = 0; i < count; ++i) {
        cudaLaunchAttribute early{};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(n_blocks);
        config.blockDim = dim3(32);
        config.dynamicSmemBytes = dynamic;
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = kEarly ? 1 : 0;
        check(cudaLaunchKernelEx(&config, read_part<kEarly>,
                                 from + static_cast<std::size_t>(i) * n / 16 * 16, whole, copy,
                                 n_slots, sink),
              "launch");
      }
    });
    best = std::min(best, us / count);
  }
  return best;
}

}  // namespace

int main() {
  cudaDeviceProp card{};
  check(cudaGetDeviceProperties(&card, 0), "card");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  int* sink = nullptr;
  check(cudaMalloc(&from, kBytesAtOnce), "cudaMalloc");
  check(cudaMalloc(&to, kBytesAtOnce), "cudaMalloc");
  check(cudaMalloc(&sink, 4096 * sizeof(int)), "cudaMalloc");
  check(cudaMemset(from, 1, kBytesAtOnce), "cudaMemset");
  const double copy_us = graph_us(stream, [&] {
    check(cudaMemcpyAsync(to, from, kBytesAtOnce, cudaMemcpyDeviceToDevice, stream), "copy");
  });
  const double pace =
      2.0 * static_cast<double>(kBytesAtOnce) / copy_us;  // bytes a microsecond, read and written
  const auto left = static_cast<int>(card.sharedMemPerBlockOptin) - 2048;
  std::printf("%s: a copy reads and writes %.2f TB/s\n", card.name, pace / 1e6);
  for (const double megabytes : kMegabytes) {
    const auto n = static_cast<std::size_t>(megabytes * 1e6) / 16384 * 16384;
    const int n_blocks = card.multiProcessorCount;
    const double after = read_us<false>(stream, from, n, sink, n_blocks, left);
    // Half of the shared memory, so that the next one's block finds room beside it; or all.
    const double early = std::min(read_us<true>(stream, from, n, sink, n_blocks, left),
                                  read_us<true>(stream, from, n, sink, n_blocks, left / 2 - 1024));
    const auto part = [&](double us) { return 100 * static_cast<double>(n) / us / pace; };
    std::printf("%6.1f MB  after %6.1f us %3.0f %%  early %6.1f us %3.0f %%\n", megabytes, after,
                part(after), early, part(early));
  }
  return 0;
}
