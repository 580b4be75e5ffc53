// While tokens are decoded, the decode thread outside llama_decode allocates nothing, frees
// nothing, takes no lock and writes nowhere but to its reader's eventfd.
//
// This program defines malloc, the pthread locks and write itself; what it defines is used by every
// library it loads. Calls are counted on a thread that is armed, except inside llama_decode, which
// the linker wraps.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "check.h"
#include "model_engine.h"

namespace {

// Plain data, so that no constructor of theirs allocates.
struct CallCounts {
  std::uint64_t n_allocations;
  std::uint64_t n_frees;
  std::uint64_t n_locks;
  std::uint64_t n_writes;
  std::uint64_t n_llama_decodes;
};
thread_local bool armed = false;
thread_local bool in_llama_decode = false;
thread_local CallCounts counts{};

bool counting() noexcept { return armed && !in_llama_decode; }

template <class Function>
Function next_definition(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

// glibc's own names of its allocator: a wrapper that asked dlsym would need malloc to start with.
void* __libc_malloc(std::size_t n_bytes);
void* __libc_calloc(std::size_t n, std::size_t n_bytes);
void* __libc_realloc(void* block, std::size_t n_bytes);
void* __libc_memalign(std::size_t alignment, std::size_t n_bytes);
void __libc_free(void* block);

void* malloc(std::size_t n_bytes) {
  counts.n_allocations += counting() ? 1 : 0;
  return __libc_malloc(n_bytes);
}
void* calloc(std::size_t n, std::size_t n_bytes) {
  counts.n_allocations += counting() ? 1 : 0;
  return __libc_calloc(n, n_bytes);
}
void* realloc(void* block, std::size_t n_bytes) {
  counts.n_allocations += counting() ? 1 : 0;
  return __libc_realloc(block, n_bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t n_bytes) {
  counts.n_allocations += counting() ? 1 : 0;
  return __libc_memalign(alignment, n_bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t n_bytes) {
  counts.n_allocations += counting() ? 1 : 0;
  *block = __libc_memalign(alignment, n_bytes);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  counts.n_frees += counting() && block != nullptr ? 1 : 0;
  __libc_free(block);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto real = next_definition<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  counts.n_locks += counting() ? 1 : 0;
  return real(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  static const auto real = next_definition<int (*)(pthread_mutex_t*)>("pthread_mutex_trylock");
  counts.n_locks += counting() ? 1 : 0;
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  static const auto real = next_definition<int (*)(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  counts.n_locks += counting() ? 1 : 0;
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  static const auto real = next_definition<int (*)(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  counts.n_locks += counting() ? 1 : 0;
  return real(lock);
}
ssize_t write(int fd, const void* data, std::size_t n_bytes) {
  static const auto real = next_definition<ssize_t (*)(int, const void*, std::size_t)>("write");
  counts.n_writes += counting() ? 1 : 0;
  return real(fd, data, n_bytes);
}

std::int32_t __real_llama_decode(llama_context* context, llama_batch batch);
std::int32_t __wrap_llama_decode(llama_context* context, llama_batch batch) {
  in_llama_decode = true;
  const std::int32_t status = __real_llama_decode(context, batch);
  in_llama_decode = false;
  counts.n_llama_decodes += armed ? 1 : 0;
  return status;
}

}  // extern "C"

namespace {

using unpaced::EngineConfig;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::Slot;
using unpaced::Stepper;
using unpaced::test::ModelEngine;

// The stepper it wraps, with the counts armed from the end of one step to the end of a later one:
// so the loop around the steps counts too. The requests of a test are all decoding between the two.
class ArmingStepper final : public Stepper {
 public:
  ArmingStepper(std::unique_ptr<Stepper> stepper, int first, int last)
      : stepper_(std::move(stepper)), first_(first), last_(last) {}

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return stepper_->n_ctx(); }
  std::int32_t begin(Slot& slot) override { return stepper_->begin(slot); }
  void forget(Slot& slot) noexcept override { stepper_->forget(slot); }
  void step(std::span<Slot> slots, unpaced::EventPublisher& events) override {
    stepper_->step(slots, events);
    ++n_steps_;
    if (n_steps_ == first_) {
      counts = {};
      armed = true;
    } else if (n_steps_ == last_) {
      armed = false;
      seen = counts;
    }
  }

  // Written by the decode thread, read after it has been joined.
  static inline CallCounts seen{};

 private:
  const std::unique_ptr<Stepper> stepper_;
  const int first_;
  const int last_;
  int n_steps_ = 0;
};

constexpr int kFirst = 20;
constexpr int kLast = 220;

// Decodes the requests in as many slots; what the thread called in the steps kFirst to kLast.
CallCounts calls_while_decoding(std::vector<std::unique_ptr<RequestSpec>> (*make)(ModelEngine&),
                                std::int32_t n_slots) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_slots * 512;
  ArmingStepper::seen = {};
  std::uint64_t n_event_writes = 0;
  {
    ModelEngine engine(config, 4096, [](std::unique_ptr<Stepper> stepper) {
      return std::make_unique<ArmingStepper>(std::move(stepper), kFirst, kLast);
    });
    REQUIRE(engine.front.thread().state() == unpaced::EngineState::kReady);
    std::vector<RequestId> ids;
    for (auto& spec : make(engine)) ids.push_back(engine.front.submit(std::move(spec)));
    REQUIRE(engine.front.run_until_all_finished());
    for (const RequestId id : ids) {
      CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
      CHECK(engine.front.tokens(id).size() > kLast);
    }
    n_event_writes = engine.front.thread().reader_wakeup().n_writes();
    engine.front.thread().stop();
  }
  CHECK_EQ(ArmingStepper::seen.n_llama_decodes, static_cast<std::uint64_t>(kLast - kFirst));
  CHECK(ArmingStepper::seen.n_writes <= n_event_writes);
  CHECK(ArmingStepper::seen.n_writes <= kLast - kFirst);  // at most one a step
  return ArmingStepper::seen;
}

std::unique_ptr<RequestSpec> request(ModelEngine& engine, std::int32_t first_token) {
  auto spec = engine.greedy(engine.prompt(20, first_token), kLast + 30);
  spec->sampling.temperature = 0.8F;
  return spec;
}

// One that every token begins, and that none completes.
std::shared_ptr<const unpaced::StopStrings> stops_of(const ModelEngine& engine) {
  const std::vector<std::string> pieces(static_cast<std::size_t>(engine.n_vocab), "a");
  const auto all = std::make_shared<const unpaced::TokenPieces>(pieces);
  const std::vector<std::string> stops{std::string(100, 'a') + 'b', "b"};
  return std::make_shared<const unpaced::StopStrings>(
      unpaced::TokenText{.pieces = all, .special = all, .spelled_out = {}}, stops);
}

void check_nothing_called(const CallCounts& calls) {
  CHECK_EQ(calls.n_allocations, 0U);
  CHECK_EQ(calls.n_frees, 0U);
  CHECK_EQ(calls.n_locks, 0U);
}

// The counters themselves: or the tests below would prove nothing.
TEST(counters_count) {
  counts = {};
  armed = true;
  std::vector<int>* volatile block = new std::vector<int>(100);  // volatile: it really happens
  delete block;
  std::mutex mutex;
  {
    const std::lock_guard lock(mutex);
  }
  const ssize_t n_written = ::write(STDOUT_FILENO, "", 0);
  armed = false;
  CHECK_EQ(n_written, 0);
  CHECK_EQ(counts.n_allocations, 2U);
  CHECK_EQ(counts.n_frees, 2U);
  CHECK_EQ(counts.n_locks, 1U);
  CHECK_EQ(counts.n_writes, 1U);
}

TEST(default_chain) {
  check_nothing_called(calls_while_decoding(
      [](ModelEngine& engine) {
        std::vector<std::unique_ptr<RequestSpec>> specs;
        specs.push_back(request(engine, 0));
        return specs;
      },
      1));
}

TEST(every_sampler_on) {
  check_nothing_called(calls_while_decoding(
      [](ModelEngine& engine) {
        std::vector<std::unique_ptr<RequestSpec>> specs;
        auto spec = request(engine, 0);
        auto& sampling = spec->sampling;
        sampling.top_k = 0;
        sampling.typical_p = 0.95F;
        sampling.top_n_sigma = 3.0F;
        sampling.xtc_probability = 0.5F;
        sampling.xtc_threshold = 0.01F;
        sampling.repeat_penalty = 1.1F;
        sampling.frequency_penalty = 0.1F;
        sampling.presence_penalty = 0.1F;
        sampling.repeat_last_n = -1;
        sampling.dry_multiplier = 0.8F;
        sampling.dry_penalty_last_n = -1;
        sampling.dynatemp_range = 0.2F;
        spec->stop = unpaced::StopMatcher(stops_of(engine));
        specs.push_back(std::move(spec));
        return specs;
      },
      1));
}

TEST(mirostat_and_logprobs_in_neighbouring_slots) {
  check_nothing_called(calls_while_decoding(
      [](ModelEngine& engine) {
        std::vector<std::unique_ptr<RequestSpec>> specs;
        for (int i = 0; i < 4; ++i) {
          auto spec = request(engine, 50 * i);
          spec->sampling.mirostat = i < 3 ? i : 0;
          spec->n_probs = i == 1 ? 0 : 10;
          spec->post_sampling_probs = i == 2;
          specs.push_back(std::move(spec));
        }
        return specs;
      },
      4));
}

}  // namespace
