// The sampling core and llama.cpp's samplers as a C library, for the Python reference tests and the
// benchmark (tests/support/sampling/sampling_library.py). Loops over many draws are here, where
// they are fast.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llama.h"
#include "llama_reference.h"
#include "sampling/chain/dry_breakers.h"
#include "sampling/logprobs.h"
#include "sampling/row/vocabulary_kernels.h"
#include "sampling/sampler.h"

namespace {

using unpaced::Candidate;
using unpaced::DryBreakers;
using unpaced::Infill;
using unpaced::InfillVocabulary;
using unpaced::LogitBias;
using unpaced::Sampler;
using unpaced::SamplingParams;
using unpaced::TokenId;
using unpaced::test::LlamaReference;

// Logits of consecutive draws are windows of n_vocab into one long array.
struct Rows {
  const float* logits;
  std::int32_t n_logits;
  std::int32_t n_vocab;

  const float* at(std::int64_t draw) const {
    constexpr std::int64_t kStride = 7919;  // a prime: windows of neighbouring draws share little
    return logits + draw * kStride % (n_logits - n_vocab + 1);
  }
};

struct Vocabulary {
  llama_model* model;
  std::vector<std::string> breakers;
  DryBreakers dry;
  std::unique_ptr<Infill> infill;  // null if no token ends a text

  const llama_vocab* get() const { return llama_model_get_vocab(model); }
};

std::unique_ptr<Infill> make_infill(const llama_vocab* vocab) {
  TokenId end = llama_vocab_eot(vocab);
  if (end < 0) end = llama_vocab_eos(vocab);
  if (end < 0) return nullptr;
  std::vector<std::string> texts;
  std::vector<std::uint8_t> ends;
  for (TokenId token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    std::string text(512, '\0');  // as llama.cpp's sampler
    text.resize(static_cast<std::size_t>(llama_token_to_piece(
        vocab, token, text.data(), static_cast<std::int32_t>(text.size()), 0, false)));
    texts.push_back(std::move(text));
    ends.push_back(llama_vocab_is_eog(vocab, token) ? 1 : 0);
  }
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_unique<Infill>(
      std::make_shared<const InfillVocabulary>(pieces, std::move(ends), end));
}

}  // namespace

extern "C" {

// One generation: n_prompt tokens are accepted, then n_tokens drawn. Mirrored in Python.
struct SequenceSpec {
  SamplingParams params;
  std::int32_t bias_begin, n_biases;
  std::int32_t prompt_begin, n_prompt;
  std::int32_t n_tokens;
};

std::int32_t sampling_sizeof_sequence_spec() { return sizeof(SequenceSpec); }

void* sampling_new(std::int32_t n_vocab, std::int32_t n_ctx) { return new Sampler(n_vocab, n_ctx); }

void sampling_free(void* sampler) { delete static_cast<Sampler*>(sampler); }

void sampling_reset(void* sampler, const SamplingParams* params, const LogitBias* biases,
                    std::int32_t n_biases, const void* vocabulary, const TokenId* prompt,
                    std::int32_t n_prompt) {
  const auto* v = static_cast<const Vocabulary*>(vocabulary);
  static_cast<Sampler*>(sampler)->reset(
      *params, {biases, static_cast<std::size_t>(n_biases)}, v == nullptr ? nullptr : &v->dry,
      {prompt, static_cast<std::size_t>(n_prompt)}, v == nullptr ? nullptr : v->infill.get());
}

// Returns the token, or -1 if the logits are not finite.
std::int32_t sampling_sample(void* sampler, const float* logits) {
  return static_cast<Sampler*>(sampler)->sample(logits).token;
}

void sampling_accept(void* sampler, TokenId token) {
  static_cast<Sampler*>(sampler)->accept(token);
}

std::int32_t sampling_candidates(void* sampler, std::int32_t n_max, Candidate* out) {
  const auto found = static_cast<Sampler*>(sampler)->candidates(n_max);
  std::memcpy(out, found.data(), found.size_bytes());
  return static_cast<std::int32_t>(found.size());
}

// A vocab-only GGUF, or null. The strings are DRY's sequence breakers, for both sides.
void* sampling_load_vocabulary(const char* path, const char* const* breakers,
                               std::int32_t n_breakers) {
  // The process may have a sink of its own, which later tests look at.
  ggml_log_callback sink = nullptr;
  void* user = nullptr;
  llama_log_get(&sink, &user);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(path, params);
  llama_log_set(sink, user);
  if (model == nullptr) return nullptr;
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->model = model;
  vocabulary->breakers.assign(breakers, breakers + n_breakers);
  vocabulary->infill = make_infill(vocabulary->get());
  vocabulary->dry = unpaced::make_dry_breakers(vocabulary->get(), vocabulary->breakers);
  return vocabulary.release();
}

void sampling_free_vocabulary(void* vocabulary) {
  const std::unique_ptr<Vocabulary> v(static_cast<Vocabulary*>(vocabulary));
  llama_model_free(v->model);
}

// Flattens the breakers as head, n_tail, tail... into `out`; returns how many numbers there are.
std::int32_t sampling_breakers(const void* vocabulary, std::int32_t* out, std::int32_t n_max) {
  const DryBreakers& dry = static_cast<const Vocabulary*>(vocabulary)->dry;
  std::int32_t n = 0;
  const auto put = [&](std::int32_t value) {
    if (n < n_max) out[n] = value;
    ++n;
  };
  for (const DryBreakers::Entry& entry : dry.entries) {
    put(entry.head);
    put(entry.tail_end - entry.tail_begin);
    for (std::int32_t i = entry.tail_begin; i < entry.tail_end; ++i) {
      put(dry.tails[static_cast<std::size_t>(i)]);
    }
  }
  return n;
}

// Draws every sequence with both samplers; both accept llama.cpp's token. The draws are numbered
// from first_draw on. Fills ours[] and theirs[]. n_same_left counts the draws after which the same
// candidates were left, as sets.
void sampling_compare(const float* logits, std::int32_t n_logits, std::int32_t n_vocab,
                      std::int32_t n_ctx, const SequenceSpec* specs, std::int32_t n_specs,
                      const LogitBias* biases, const TokenId* prompts, const void* vocabulary,
                      TokenId* ours, TokenId* theirs, std::uint8_t* undefined) {
  const auto* v = static_cast<const Vocabulary*>(vocabulary);
  const Rows rows{logits, n_logits, n_vocab};
  const std::vector<std::string> no_breakers;
  Sampler sampler(n_vocab, n_ctx);
  std::int64_t draw = 0;
  for (const SequenceSpec& spec : std::span(specs, static_cast<std::size_t>(n_specs))) {
    const std::span bias(biases + spec.bias_begin, static_cast<std::size_t>(spec.n_biases));
    const std::span prompt(prompts + spec.prompt_begin, static_cast<std::size_t>(spec.n_prompt));
    sampler.reset(spec.params, bias, v == nullptr ? nullptr : &v->dry, prompt,
                  v == nullptr ? nullptr : v->infill.get());
    LlamaReference reference(n_vocab, v == nullptr ? nullptr : v->get(), spec.params, bias,
                             v == nullptr ? no_breakers : v->breakers);
    for (const TokenId token : prompt) reference.accept(token);
    for (std::int32_t i = 0; i < spec.n_tokens; ++i, ++draw) {
      ours[draw] = sampler.sample(rows.at(draw)).token;
      theirs[draw] = reference.sample(rows.at(draw));
      undefined[draw] = reference.has_nan() ? 1 : 0;
      sampler.accept(theirs[draw]);
      reference.accept(theirs[draw]);
    }
  }
}

// Plain softmax: the n best tokens and the logprob of `token`. Returns how many there are.
std::int32_t sampling_logprobs(const float* logits, std::int32_t n_vocab, std::int32_t n,
                               TokenId token, unpaced::TokenLogprob* best, float* of_token) {
  unpaced::TopLogprobs logprobs(n_vocab);
  const auto found = logprobs.compute(logits, n);
  std::memcpy(best, found.data(), found.size_bytes());
  *of_token = logprobs.logprob(token);
  return static_cast<std::int32_t>(found.size());
}

// Draws n tokens of one sequence with our sampler, all from the same logits, without accepting
// them.
void sampling_draw_many(void* sampler, const float* logits, std::int32_t n, TokenId* out) {
  for (std::int32_t i = 0; i < n; ++i)
    out[i] = static_cast<Sampler*>(sampler)->sample(logits).token;
}

// One draw of llama.cpp's chain from `logits`; returns its token and what was left, in its order.
std::int32_t reference_sample(const float* logits, std::int32_t n_vocab,
                              const SamplingParams* params, const LogitBias* biases,
                              std::int32_t n_biases, const void* vocabulary, const TokenId* prompt,
                              std::int32_t n_prompt, Candidate* left, std::int32_t* n_left) {
  const auto* v = static_cast<const Vocabulary*>(vocabulary);
  LlamaReference reference(n_vocab, v == nullptr ? nullptr : v->get(), *params,
                           {biases, static_cast<std::size_t>(n_biases)},
                           v == nullptr ? std::vector<std::string>{} : v->breakers);
  for (std::int32_t i = 0; i < n_prompt; ++i) reference.accept(prompt[i]);
  const TokenId token = reference.sample(logits);
  *n_left = 0;
  for (const llama_token_data& c : reference.left()) left[(*n_left)++] = {c.id, c.logit, c.p};
  return token;
}

// Microseconds of each of n draws (sample and accept) by our sampler and by llama.cpp's, in turns.
void sampling_time(const float* logits, std::int32_t n_logits, std::int32_t n_vocab,
                   const SequenceSpec* spec, const LogitBias* biases, const TokenId* prompt,
                   const void* vocabulary, std::int32_t n, double* ours_us, double* theirs_us) {
  const auto* v = static_cast<const Vocabulary*>(vocabulary);
  using Clock = std::chrono::steady_clock;
  const auto us_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const Rows rows{logits, n_logits, n_vocab};
  const std::span bias(biases, static_cast<std::size_t>(spec->n_biases));
  Sampler sampler(n_vocab, 4096);
  sampler.reset(spec->params, bias, nullptr, {prompt, static_cast<std::size_t>(spec->n_prompt)},
                v == nullptr ? nullptr : v->infill.get());
  LlamaReference reference(n_vocab, v == nullptr ? nullptr : v->get(), spec->params, bias, {});
  for (std::int32_t i = 0; i < spec->n_prompt; ++i) reference.accept(prompt[i]);
  for (std::int32_t i = 0; i < n; ++i) {
    auto start = Clock::now();
    const TokenId token = sampler.sample(rows.at(i)).token;
    sampler.accept(token);
    ours_us[i] = us_since(start);
    start = Clock::now();
    reference.accept(reference.sample(rows.at(i)));
    theirs_us[i] = us_since(start);
  }
}

// Logits that expf is asked for (not above 0): how many of all floats from -0 to -104 a kernel set
// gives another result for than libm. Level 0 is the baseline.
std::int64_t sampling_exp_differences(std::int32_t level, std::int64_t* n_compared) {
  constexpr std::uint32_t kFirst = 0x80000000U;  // -0
  constexpr std::uint32_t kLast = 0xc2d00000U;   // -104
  constexpr std::int32_t kBlock = 4096;
  const unpaced::VocabularyKernels* levels[3];
  unpaced::all_vocabulary_kernels(levels, 3);
  std::vector<float> values(kBlock);
  std::vector<float> exps(kBlock);
  std::int64_t n_different = 0;
  *n_compared = 0;
  for (std::uint32_t begin = kFirst; begin <= kLast; begin += kBlock) {
    for (std::uint32_t i = 0; i < kBlock; ++i) values[i] = std::bit_cast<float>(begin + i);
    levels[level]->exp_shifted(values.data(), kBlock, 0.0F, exps.data());
    for (std::uint32_t i = 0; i < kBlock; ++i)
      n_different += exps[i] != std::exp(values[i]) ? 1 : 0;
    *n_compared += kBlock;
  }
  return n_different;
}

// The name of a kernel set that this CPU runs, or null. The last one is in use.
const char* sampling_kernels(std::int32_t level) {
  const unpaced::VocabularyKernels* levels[3];
  return level < unpaced::all_vocabulary_kernels(levels, 3) ? levels[level]->name : nullptr;
}
}
