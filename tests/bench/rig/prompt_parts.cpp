// Where llama_decode's time goes while it computes a short prompt: `prompt_parts MODEL`.
//
// The scheduler's two calls are interposed, so that building the graph, giving it memory and
// launching its kernels are told apart. Each line is of prompts of so many tokens that differ,
// whose number varies (or does not: then ggml launches a CUDA graph of its own), after so much
// idling. Medians in milliseconds; `wait` is what the GPU still takes after the last launch.
#include <dlfcn.h>
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

enum Part : std::size_t { kBuild, kMemory, kInputs, kLaunch, kWait, kWhole, kParts };
constexpr std::array<const char*, kParts> kNames{"build",  "memory", "inputs",
                                                 "launch", "wait",   "whole"};
using Times = std::array<double, kParts>;

struct Marks {
  Clock::time_point memory_begin, memory_end, launch_begin, launch_end;
  bool has_memory = false;
} marks;

double ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

class Prompts {
 public:
  explicit Prompts(const char* path) {
    // The embedding look-up on the GPU, as the engine has it.
    ggml_backend_dev_t gpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    overrides_[0] = {"^token_embd\\.weight$", ggml_backend_dev_buffer_type(gpu)};
    llama_model_params model = llama_model_default_params();
    model.n_gpu_layers = 999;
    model.tensor_buft_overrides = overrides_.data();
    model_ = llama_model_load_from_file(path, model);
    llama_context_params context = llama_context_default_params();
    context.n_ctx = 16384;
    context.n_seq_max = 4;
    context.kv_unified = true;
    context.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    if (model_ != nullptr) context_ = llama_init_from_model(model_, context);
  }
  ~Prompts() {
    llama_free(context_);
    llama_model_free(model_);
  }
  Prompts(const Prompts&) = delete;
  Prompts& operator=(const Prompts&) = delete;

  [[nodiscard]] bool is_there() const { return context_ != nullptr; }

  Times compute(int n) {
    std::vector<llama_token> tokens(static_cast<std::size_t>(n));
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    for (llama_token& token : tokens) token = static_cast<llama_token>(7919LL * ++salt_ % n_vocab);
    llama_memory_clear(llama_get_memory(context_), false);
    marks.has_memory = false;
    const auto begin = Clock::now();
    if (llama_decode(context_, llama_batch_get_one(tokens.data(), n)) != 0) std::abort();
    llama_synchronize(context_);
    const auto end = Clock::now();
    // A graph that is used again has its memory.
    const auto built = marks.has_memory ? marks.memory_begin : marks.launch_begin;
    const auto placed = marks.has_memory ? marks.memory_end : marks.launch_begin;
    return {ms_between(begin, built),
            ms_between(built, placed),
            ms_between(placed, marks.launch_begin),
            ms_between(marks.launch_begin, marks.launch_end),
            ms_between(marks.launch_end, end),
            ms_between(begin, end)};
  }

 private:
  std::array<llama_model_tensor_buft_override, 2> overrides_{};
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  long long salt_ = 0;
};

struct Series {
  const char* what;
  int n_tokens;
  int n_more;  // up to so many tokens more
  int idle_ms;
  int n;
};

constexpr std::array kSeries{
    Series{"one token", 1, 0, 0, 20},
    Series{"9 to 12 tokens", 9, 3, 0, 20},
    Series{"10 tokens, always", 10, 0, 0, 20},
    Series{"64 to 79 tokens", 64, 15, 0, 20},
    Series{"70 tokens, always", 70, 0, 0, 20},
    Series{"9 to 12 tokens, 50 ms idle", 9, 3, 50, 12},
    Series{"9 to 12 tokens, 2 s idle", 9, 3, 2000, 5},
    Series{"64 to 79 tokens, 2 s idle", 64, 15, 2000, 5},
    Series{"9 to 12 tokens, 11 s idle", 9, 3, 11000, 2},
};

void measure(Prompts& prompts, const Series& series) {
  std::array<std::vector<double>, kParts> times;
  for (int i = 0; i < series.n; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(series.idle_ms));
    const Times one = prompts.compute(series.n_tokens + (5 * i) % (series.n_more + 1));
    for (std::size_t part = 0; part < kParts; ++part) times[part].push_back(one[part]);
  }
  std::printf("%-28s", series.what);
  for (std::size_t part = 0; part < kParts; ++part) {
    std::ranges::sort(times[part]);
    std::printf(" %s %.2f", kNames[part], times[part][times[part].size() / 2]);
  }
  std::printf("\n");
}

}  // namespace

extern "C" bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t scheduler, ggml_cgraph* graph) {
  static const auto next = next_of<decltype(&ggml_backend_sched_alloc_graph)>(__func__);
  marks.has_memory = true;
  marks.memory_begin = Clock::now();
  const bool done = next(scheduler, graph);
  marks.memory_end = Clock::now();
  return done;
}

extern "C" ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t scheduler,
                                                              ggml_cgraph* graph) {
  static const auto next = next_of<decltype(&ggml_backend_sched_graph_compute_async)>(__func__);
  marks.launch_begin = Clock::now();
  const ggml_status status = next(scheduler, graph);
  marks.launch_end = Clock::now();
  return status;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: prompt_parts MODEL\n", stderr);
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  Prompts prompts(argv[1]);
  if (!prompts.is_there()) {
    std::fputs("the model cannot be loaded onto the GPU\n", stderr);
    return 1;
  }
  for (int i = 0; i < 5; ++i) prompts.compute(10 + 60 * (i % 2) + i);
  for (const Series& series : kSeries) measure(prompts, series);
  return 0;
}
