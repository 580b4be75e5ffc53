// llguidance's C functions, found at run time in the shared library of its Python wheel: the wheel
// exports them, and brings no header. Declarations after parser/llguidance.h of llguidance 1.9.1
// (https://github.com/guidance-ai/llguidance); load() checks what can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace unpaced {

struct LlgTokenizer;
struct LlgMatcher;

struct LlgTokenizerInit {  // LlgTokenizerInitV2
  std::size_t struct_size;
  std::uint32_t vocab_size;
  std::uint32_t tok_eos;
  const std::uint32_t* token_lens;
  const std::uint8_t* token_bytes;
  const char* tokenizer_json;
  bool tokenize_assumes_string;
  std::size_t (*tokenize_fn)(const void*, const std::uint8_t*, std::size_t, std::uint32_t*,
                             std::size_t);
  bool use_approximate_greedy_tokenize_fn;
  const void* tokenize_user_data;
  const char* const* slices;
  const std::uint32_t* tok_eos_extra;
  std::uint32_t tok_eos_extra_count;
};

struct LlgParserLimits {  // 0: the library's default
  std::size_t max_items_in_row;
  std::uint64_t initial_lexer_fuel;
  std::uint64_t step_lexer_fuel;
  std::size_t step_max_items;
  std::size_t max_lexer_states;
  std::size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct LlgConstraintInit {
  const LlgTokenizer* tokenizer;
  std::uint32_t log_buffer_level;
  std::uint32_t log_stderr_level;
  bool ff_tokens_ok;
  bool backtrack_ok;
  LlgParserLimits limits;
  std::uint8_t room[256];  // for fields of a later version
};

struct LlguidanceLibrary {
  // Loads the library at `path`, which stays loaded. Throws std::runtime_error, one sentence, if it
  // is not llguidance `version` or does not look like it.
  static LlguidanceLibrary load(const std::string& path, const std::string& version);

  const char* (*get_version)();
  LlgTokenizer* (*new_tokenizer)(const LlgTokenizerInit*, char* error, std::size_t error_size);
  void (*free_tokenizer)(LlgTokenizer*);
  std::size_t (*tokenize_bytes)(const LlgTokenizer*, const std::uint8_t*, std::size_t,
                                std::uint32_t* tokens, std::size_t n_max);
  void (*set_defaults)(LlgConstraintInit*, const LlgTokenizer*);
  LlgMatcher* (*new_matcher)(const LlgConstraintInit*, const char* kind, const char* text);
  LlgMatcher* (*clone_matcher)(const LlgMatcher*);
  void (*free_matcher)(LlgMatcher*);
  const char* (*get_error)(LlgMatcher*);  // null: none
  std::size_t (*mask_bytes)(const LlgMatcher*);
  std::int32_t (*compute_mask)(LlgMatcher*, std::uint32_t* words, std::size_t n_bytes);
  std::int32_t (*validate_tokens)(LlgMatcher*, const std::uint32_t* tokens, std::size_t n);
  std::int32_t (*consume_tokens)(LlgMatcher*, const std::uint32_t* tokens, std::size_t n);
  bool (*is_stopped)(const LlgMatcher*);
  bool (*is_accepting)(LlgMatcher*);
};

}  // namespace unpaced
