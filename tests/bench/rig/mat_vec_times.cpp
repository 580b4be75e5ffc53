// How long mat-vecs take: ggml's kernels and each build of ours, beside what the card copies.
//
//   mat_vec_times [FORMAT | prompts | crowds | COLUMNS]
//
// A line is a shape: microseconds a product, each product of a matrix of its own, as many as do not
// fit into the card's cache, in one CUDA graph. "ggml" rounds its input each time, as it does;
// "ours
// + q8" does so too, "ours" has it rounded once. The builds of ours are numbered as
// enqueue_mat_vec() numbers them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/kernels/card.h"
#include "device/kernels/rows/tensor_records.h"
#include "mat_vec_rig.h"

using namespace unpaced;
using namespace unpaced::test;

namespace {

constexpr int kRounds = 10;
constexpr std::size_t kBytesAtOnce = std::size_t{768} << 20U;

struct Shape {
  const char* format;
  int n_rows;
  int n_values;
  int n_columns = 1;
  bool glu = false;
  int order_columns = 1;  // as MatVec has it
};

// An 8B's step, a 1B's, a 0.5B's; then formats at one shape, then columns.
constexpr Shape kShapes[] = {
    {"Q4_K", 6144, 4096},
    {"Q4_K", 4096, 4096},
    {"Q4_K", 14336, 4096, 1, true},
    {"Q4_K", 4096, 14336},
    {"Q6_K", 4096, 14336},
    {"Q6_K", 1024, 4096},
    {"Q6_K", 128256, 4096},
    {"Q4_K", 3072, 2048},
    {"Q4_K", 2048, 2048},
    {"Q4_K", 8192, 2048, 1, true},
    {"Q4_K", 2048, 8192},
    {"Q6_K", 2048, 8192},
    {"Q8_0", 896, 896},
    {"Q8_0", 4864, 896, 1, true},
    {"Q8_0", 896, 4864},
    {"Q8_0", 151936, 896},
    {"Q8_0", 4096, 4096},
    {"Q8_0", 4096, 14336},
    {"Q5_K", 14336, 4096},
    {"Q4_0", 14336, 4096},
    {"Q5_0", 14336, 4096},
    {"IQ4_XS", 14336, 4096},
    {"MXFP4", 14336, 4096},
    {"Q4_K", 14336, 4096},
    {"Q4_K", 14336, 4096, 2},
    {"Q4_K", 14336, 4096, 4},
    {"Q4_K", 14336, 4096, 8},
    {"Q4_K", 4096, 14336, 2},
    {"Q4_K", 4096, 14336, 4},
    {"Q4_K", 4096, 14336, 8},
    {"Q4_K", 4096, 4096, 8},
    {"Q4_K", 6144, 4096, 8},
    {"Q4_K", 14336, 4096, 8, true},
    {"Q4_K", 3072, 2048, 8},
    {"Q4_K", 2048, 2048, 8},
    {"Q4_K", 8192, 2048, 8, true},
    {"Q4_K", 2048, 8192, 8},
    {"Q6_K", 14336, 4096, 8},
    {"Q6_K", 1024, 4096, 8},
    {"Q6_K", 4096, 14336, 8},
    {"Q6_K", 2048, 8192, 8},
    {"Q6_K", 128256, 4096, 8},
    {"Q5_K", 14336, 4096, 8},
    {"Q5_K", 14336, 4096, 8, true},
    {"Q5_K", 4096, 14336, 8},
    {"Q8_0", 14336, 4096, 8},
    {"Q8_0", 14336, 4096, 8, true},
    {"Q8_0", 4096, 14336, 8},
    {"Q8_0", 896, 896, 8},
    {"Q8_0", 4864, 896, 8, true},
    {"Q8_0", 896, 4864, 8},
    {"Q8_0", 151936, 896, 8},
    // Crowds of 16 and 32.
    {"Q4_K", 6144, 4096, 16, false, 16},
    {"Q4_K", 4096, 4096, 16, false, 16},
    {"Q4_K", 1024, 4096, 16, false, 16},
    {"Q4_K", 14336, 4096, 16, true, 16},
    {"Q4_K", 4096, 14336, 16, false, 16},
    {"Q6_K", 1024, 4096, 16, false, 16},
    {"Q6_K", 4096, 14336, 16, false, 16},
    {"Q6_K", 128256, 4096, 16, false, 16},
    {"Q4_K", 3072, 2048, 16, false, 16},
    {"Q4_K", 2048, 2048, 16, false, 16},
    {"Q4_K", 8192, 2048, 16, true, 16},
    {"Q4_K", 2048, 8192, 16, false, 16},
    {"Q6_K", 2048, 8192, 16, false, 16},
    {"Q6_K", 128256, 2048, 16, false, 16},
    {"Q5_K", 4096, 14336, 16, false, 16},
    {"Q8_0", 4096, 14336, 16, false, 16},
    {"Q8_0", 14336, 4096, 16, true, 16},
    {"Q4_K", 14336, 4096, 24, true, 24},
    {"Q4_K", 4096, 14336, 24, false, 24},
    {"Q6_K", 4096, 14336, 24, false, 24},
    {"Q4_K", 6144, 4096, 32, false, 32},
    {"Q4_K", 14336, 4096, 32, true, 32},
    {"Q4_K", 4096, 14336, 32, false, 32},
    {"Q6_K", 4096, 14336, 32, false, 32},
    {"Q6_K", 128256, 4096, 32, false, 32},
    // Prompts of 128 tokens.
    {"Q4_K", 6144, 4096, 128, false, 128},
    {"Q4_K", 4096, 4096, 128, false, 128},
    {"Q4_K", 14336, 4096, 128, true, 128},
    {"Q4_K", 14336, 4096, 128, false, 128},
    {"Q4_K", 4096, 14336, 128, false, 128},
    {"Q6_K", 4096, 14336, 128, false, 128},
    {"Q8_0", 4096, 14336, 32, false, 32},
    // A prompt of 8, 5 and 4 tokens: an 8B's, a 1B's.
    {"Q4_K", 6144, 4096, 8, false, 8},
    {"Q4_K", 4096, 4096, 8, false, 8},
    {"Q4_K", 14336, 4096, 8, true, 8},
    {"Q4_K", 4096, 14336, 8, false, 8},
    {"Q6_K", 4096, 14336, 8, false, 8},
    {"Q4_K", 4096, 4096, 5, false, 5},
    {"Q4_K", 14336, 4096, 5, true, 5},
    {"Q4_K", 4096, 14336, 5, false, 5},
    {"Q4_K", 4096, 4096, 4, false, 4},
    {"Q4_K", 2048, 2048, 8, false, 8},
    {"Q4_K", 8192, 2048, 8, true, 8},
    {"Q4_K", 2048, 8192, 8, false, 8},
    {"Q8_0", 4096, 4096, 8, false, 8},
    // Prompts of 65 to 72 tokens.
    {"Q4_K", 4096, 4096, 72, false, 72},
    {"Q4_K", 14336, 4096, 72, true, 72},
    {"Q4_K", 4096, 14336, 72, false, 72},
    {"Q6_K", 4096, 14336, 72, false, 72},
    {"Q4_K", 2048, 2048, 72, false, 72},
    {"Q4_K", 8192, 2048, 72, true, 72},
    {"Q4_K", 2048, 8192, 72, false, 72},
};

const GgmlFormat& format_named(const std::string& name) {
  for (const GgmlFormat& format : card_formats()) {
    if (name == format.name) return format;
  }
  throw std::runtime_error("no such format: " + name);
}

// Microseconds of one run of what `enqueue` puts on the stream, as a CUDA graph.
double graph_us(cudaStream_t stream, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  enqueue();
  cuda_check(cudaStreamEndCapture(stream, &graph), "capture");
  cuda_check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda_check(cudaEventCreate(&begin), "event");
  cuda_check(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) cuda_check(cudaGraphLaunch(executable, stream), "launch");
  cuda_check(cudaEventRecord(begin, stream), "event");
  for (int i = 0; i < kRounds; ++i) cuda_check(cudaGraphLaunch(executable, stream), "launch");
  cuda_check(cudaEventRecord(end, stream), "event");
  cuda_check(cudaStreamSynchronize(stream), "run");
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, begin, end), "event");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return 1e3 * ms / kRounds;
}

// Bytes a microsecond, read and written together counted once: what weights could at best be read
// at.
double copy_rate(cudaStream_t stream) {
  void* from = nullptr;
  void* to = nullptr;
  cuda_check(cudaMalloc(&from, kBytesAtOnce), "cudaMalloc");
  cuda_check(cudaMalloc(&to, kBytesAtOnce), "cudaMalloc");
  const double us = graph_us(stream, [&] {
    cuda_check(cudaMemcpyAsync(to, from, kBytesAtOnce, cudaMemcpyDeviceToDevice, stream), "copy");
  });
  cudaFree(from);
  cudaFree(to);
  return 2.0 * static_cast<double>(kBytesAtOnce) / us;
}

// A shape's matrices, inputs and outputs on the device.
class Matrices {
 public:
  explicit Matrices(const Shape& shape)
      : shape_(shape), format_(format_named(shape.format)), each_(shape.glu ? 2 : 1) {
    row_bytes_ = static_cast<std::size_t>(shape.n_values / format_.block_values) *
                 static_cast<std::size_t>(format_.block_bytes);
    bytes_ = row_bytes_ * static_cast<std::size_t>(shape.n_rows) * static_cast<std::size_t>(each_);
    count_ = static_cast<int>(std::clamp<std::size_t>(kBytesAtOnce / bytes_, 2, 96));
    graph_.emplace(static_cast<std::size_t>(8 * count_ + 8));
    ggml_context* context = graph_->context();
    input_ = ggml_new_tensor_2d(context, GGML_TYPE_F32, shape.n_values, shape.n_columns);
    for (int i = 0; i < count_ * each_; ++i)
      weights_.push_back(ggml_new_tensor_2d(context, static_cast<ggml_type>(format_.ggml_type),
                                            shape.n_values, shape.n_rows));
    for (int i = 0; i < count_; ++i) {
      ggml_tensor* product =
          ggml_mul_mat(context, weights_[static_cast<std::size_t>(i * each_)], input_);
      if (shape.glu)
        product = ggml_swiglu_split(
            context, product,
            ggml_mul_mat(context, weights_[static_cast<std::size_t>(i * each_ + 1)], input_));
      graph_->compute_last(product);
    }
  }

  void fill(GgmlBackend& backend) {
    graph_->allocate(backend.backend);
    Random random(7);
    const auto weights = random_weights(
        format_,
        bytes_ / static_cast<std::size_t>(each_) / static_cast<std::size_t>(format_.block_bytes),
        false, random);
    for (ggml_tensor* tensor : weights_) upload(tensor, weights);
    std::vector<float> values(static_cast<std::size_t>(shape_.n_values) *
                              static_cast<std::size_t>(shape_.n_columns));
    for (float& value : values) value = random.real();
    upload(input_, values);
    const std::size_t n = static_cast<std::size_t>(shape_.n_columns);
    cuda_check(cudaMalloc(&rounded_, n * static_cast<std::size_t>(q8_blocks(shape_.n_values)) *
                                         sizeof(Q8Block)),
               "cudaMalloc");
    cuda_check(cudaMalloc(&records_, records_bytes_of(shape_.n_values, shape_.n_columns)),
               "cudaMalloc");
    cuda_check(cudaMalloc(&out_, n * static_cast<std::size_t>(shape_.n_rows) * 4), "cudaMalloc");
  }
  ~Matrices() {
    cudaFree(rounded_);
    cudaFree(records_);
    cudaFree(out_);
  }
  Matrices(const Matrices&) = delete;
  Matrices& operator=(const Matrices&) = delete;

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  [[nodiscard]] MatVec mat_vec(int i) const {
    MatVec made;
    made.n_matrices = each_;
    for (int m = 0; m < each_; ++m) {
      made.matrices[static_cast<std::size_t>(m)] = {
          .weights = weights_[static_cast<std::size_t>(i * each_ + m)]->data,
          .format = format_.format,
          .n_rows = shape_.n_rows,
          .row_bytes = static_cast<std::int64_t>(row_bytes_),
          .out = out_,
          .out_stride = shape_.n_rows};
    }
    made.n_values = shape_.n_values;
    made.end = shape_.glu ? MatVecEnd::kGlu : MatVecEnd::kPlain;
    if (is_quantised(format_)) {
      made.input_q8 = rounded_;
      made.input_records = records().data;
      made.input_stride = q8_blocks(shape_.n_values);
    } else {
      made.input = static_cast<const float*>(input_->data);
    }
    made.n_columns = shape_.n_columns;
    made.order_columns = shape_.order_columns;
    return made;
  }

  // As a step has them (value_places.h).
  [[nodiscard]] RecordRows records() const {
    if (shape_.n_columns > kMatVecColumns) return {records_, record_eights(shape_.n_columns)};
    return {shape_.n_columns > 4 ? records_ : nullptr, 0};
  }

  double ours_us(int variant, bool rounds, const Card& card, cudaStream_t stream) const {
    const ProductMemory memory(card);
    const double us = graph_us(stream, [&] {
      for (int i = 0; i < count_; ++i) {
        if (is_quantised(format_) && (rounds || i == 0)) {
          enqueue_row_rounding({.input = static_cast<const float*>(input_->data),
                                .input_stride = shape_.n_values,
                                .n_values = shape_.n_values,
                                .n_rows = shape_.n_columns,
                                .rounded = rounded_,
                                .records = records()},
                               card, stream);
        }
        MatVec made = mat_vec(i);
        made.variant = variant;
        if (shape_.n_columns > kMatVecColumns) {
          enqueue_mat_mat(made, memory.get(), card, stream);
        } else {
          enqueue_mat_vec(made, card, stream);
        }
      }
    });
    return us / count_;
  }

  double ggml_us(GgmlBackend& backend) {
    using Clock = std::chrono::steady_clock;
    // ggml records its graph after it has seen it a few times.
    for (int i = 0; i < 6; ++i) graph_->compute(backend.backend);
    const auto begin = Clock::now();
    for (int i = 0; i < kRounds; ++i) graph_->compute_async(backend.backend);
    ggml_backend_synchronize(backend.backend);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kRounds /
           count_;
  }

 private:
  Shape shape_;
  const GgmlFormat& format_;
  int each_;
  int count_ = 0;
  std::size_t row_bytes_ = 0;
  std::size_t bytes_ = 0;
  std::optional<GgmlGraph> graph_;
  ggml_tensor* input_ = nullptr;
  std::vector<ggml_tensor*> weights_;
  Q8Block* rounded_ = nullptr;
  std::uint8_t* records_ = nullptr;
  float* out_ = nullptr;
};

void measure(const Shape& shape, GgmlBackend& backend, const Card& card, double copied,
             cudaStream_t stream) {
  Matrices matrices(shape);
  matrices.fill(backend);
  const double ggml = matrices.ggml_us(backend);
  std::printf("%-6s %6d x %5d %d%s | ggml %7.2f", shape.format, shape.n_rows, shape.n_values,
              shape.n_columns, shape.glu ? " glu" : "    ", ggml);
  const std::int32_t n = shape.n_columns > kMatVecColumns
                             ? (why_no_mat_mat(matrices.mat_vec(0), card).empty() ? 1 : 0)
                             : n_mat_vec_variants(matrices.mat_vec(0), card);
  if (n == 0) {
    std::printf(" | none of ours\n");
    return;
  }
  std::int32_t best = 0;
  std::vector<double> us;
  for (std::int32_t variant = 0; variant < n; ++variant) {
    us.push_back(matrices.ours_us(variant, false, card, stream));
    if (us.back() < us[static_cast<std::size_t>(best)]) best = variant;
  }
  const double least = us[static_cast<std::size_t>(best)];
  const double rate = static_cast<double>(matrices.bytes()) / least;
  std::printf(" | ours + q8 %7.2f | ours %7.2f by %d, %4.0f GB/s, %2.0f %% |",
              matrices.ours_us(best, true, card, stream), least, best, rate / 1e3,
              100 * rate / copied);
  for (const double one : us) std::printf(" %.2f", one);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Card card = find_card(0);
    GgmlBackend backend;
    cudaDeviceProp properties = {};
    cuda_check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const double copied = copy_rate(stream);
    std::printf("%s, %d multiprocessors, copies %.0f GB/s (read and written)\n", properties.name,
                card.n_multiprocessors, copied / 1e3);
    for (const Shape& shape : kShapes) {
      const bool is_asked = argc < 2 || std::strcmp(argv[1], shape.format) == 0 ||
                            (std::strcmp(argv[1], "prompts") == 0 && shape.order_columns > 1) ||
                            (std::strcmp(argv[1], "crowds") == 0 && shape.n_columns > 8) ||
                            argv[1] == std::to_string(shape.n_columns);
      if (!is_asked) continue;
      measure(shape, backend, card, copied, stream);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
