#include "grammar/llguidance_library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace unpaced {
namespace {

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  void* symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    throw std::runtime_error(std::string("llguidance's library has no function ") + name);
  }
  function = reinterpret_cast<Function*>(symbol);
}

// The defaults of the limits are documented: found where we expect them, the struct is ours.
void check_layout(const LlguidanceLibrary& library) {
  LlgConstraintInit init{};
  library.set_defaults(&init, nullptr);
  const LlgParserLimits& limits = init.limits;
  if (limits.max_items_in_row != 2000 || limits.initial_lexer_fuel != 1'000'000 ||
      limits.step_lexer_fuel != 200'000 || limits.step_max_items != 50'000 ||
      limits.max_lexer_states != 250'000 || limits.max_grammar_size != 500'000) {
    throw std::runtime_error("llguidance's structures are not those of the version expected");
  }
}

}  // namespace

LlguidanceLibrary LlguidanceLibrary::load(const std::string& path, const std::string& version) {
  // NODELETE: threads of grammars may outlive the engine by a moment.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) throw std::runtime_error(std::string("llguidance: ") + ::dlerror());
  LlguidanceLibrary found{};
  find(handle, "llg_get_version", found.get_version);
  // "llguidance@1.9.1 derivre@0.3.13"
  const std::string identity = found.get_version();
  if (!identity.starts_with("llguidance@" + version + " ")) {
    throw std::runtime_error("the installed library calls itself " + identity +
                             ", not llguidance " + version);
  }
  find(handle, "llg_new_tokenizer_v2", found.new_tokenizer);
  find(handle, "llg_free_tokenizer", found.free_tokenizer);
  find(handle, "llg_tokenize_bytes", found.tokenize_bytes);
  find(handle, "llg_constraint_init_set_defaults", found.set_defaults);
  find(handle, "llg_new_matcher", found.new_matcher);
  find(handle, "llg_clone_matcher", found.clone_matcher);
  find(handle, "llg_free_matcher", found.free_matcher);
  find(handle, "llg_matcher_get_error", found.get_error);
  find(handle, "llg_matcher_get_mask_byte_size", found.mask_bytes);
  find(handle, "llg_matcher_compute_mask_into", found.compute_mask);
  find(handle, "llg_matcher_validate_tokens", found.validate_tokens);
  find(handle, "llg_matcher_consume_tokens", found.consume_tokens);
  find(handle, "llg_matcher_is_stopped", found.is_stopped);
  find(handle, "llg_matcher_is_accepting", found.is_accepting);
  check_layout(found);
  return found;
}

}  // namespace unpaced
