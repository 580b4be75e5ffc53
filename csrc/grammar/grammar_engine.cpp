#include "grammar/grammar_engine.h"

#include <array>
#include <stdexcept>

#include "grammar/llguidance_matcher.h"

namespace unpaced {
namespace {

// llguidance's mark of a token that is no text.
constexpr char kSpecialMark = '\xff';

// Kinds of text. Where a terminal goes on with any text of a kind, all tokens of that kind may come
// and llguidance does not walk through them one by one. It can tell only of runs of a class. The
// first four are its own, made for strings of JSON; then text without controls and line separators,
// ASCII without blanks, names with dots and signs, and words. The shorter ones fit where a length
// is limited.
constexpr std::array<const char*, 13> kSlices = {
    R"([\x20\x0A\x0D\x09]+)",
    R"([^"\\\x00-\x1F\x7F]{1,10})",
    R"([^"\\\x00-\x1F\x7F]{1,30})",
    R"([^"\\\x00-\x1F\x7F]+)",
    R"([^"\\\x00-\x1F\x7F-\x9F\u{2028}\u{2029}]{1,30})",
    R"([!#-\[\]-~]{1,20})",
    "[a-zA-Z0-9._%+-]{1,20}",
    "[a-zA-Z ]{1,20}",
    "[a-zA-Z0-9_]{1,20}",
    "[a-zA-Z]{1,20}",
    "[a-z ]{1,20}",
    "[a-z]{1,20}",
    nullptr,
};

// Bytes of the tokens, one after the other, as llguidance takes them.
struct TokenBytes {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint32_t> lengths;

  void add(const std::string& text, bool is_special) {
    if (is_special) bytes.push_back(static_cast<std::uint8_t>(kSpecialMark));
    bytes.insert(bytes.end(), text.begin(), text.end());
    lengths.push_back(static_cast<std::uint32_t>(text.size() + (is_special ? 1 : 0)));
  }
};

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Vocabulary& vocabulary) {
  for (TokenId token = 0; token < vocabulary.n_tokens(); ++token) {
    texts.push_back(vocabulary.piece(token, false));
    pieces.push_back(vocabulary.piece(token, true));
    is_eog.push_back(llama_vocab_is_eog(vocabulary.get(), token));
  }
}

GrammarEngine::GrammarEngine(GrammarVocabulary vocabulary, const std::string& library,
                             const std::string& version, const GrammarLimits& limits)
    : library_(LlguidanceLibrary::load(library, version)),
      limits_(limits),
      vocabulary_(std::move(vocabulary)),
      pieces_(std::make_shared<const TokenPieces>(vocabulary_.pieces)) {
  TokenBytes tokens;
  std::vector<std::uint32_t> ends;
  for (TokenId token = 0; token < n_vocab(); ++token) {
    if (is_eog(token)) ends.push_back(static_cast<std::uint32_t>(token));
    const std::string& text = vocabulary_.texts[static_cast<std::size_t>(token)];
    const bool is_special = text.empty() || is_eog(token);
    tokens.add(is_special ? vocabulary_.pieces[static_cast<std::size_t>(token)] : text, is_special);
  }
  if (ends.empty()) throw std::runtime_error("the model has no token that ends a text");
  LlgTokenizerInit init{};
  init.struct_size = sizeof init;
  init.vocab_size = static_cast<std::uint32_t>(n_vocab());
  init.tok_eos = ends.front();
  init.tok_eos_extra = ends.data() + 1;
  init.tok_eos_extra_count = static_cast<std::uint32_t>(ends.size() - 1);
  init.token_lens = tokens.lengths.data();
  init.token_bytes = tokens.bytes.data();
  init.slices = kSlices.data();
  // Only asked for text behind a trigger: any tokens that spell it will do.
  init.use_approximate_greedy_tokenize_fn = true;
  std::array<char, 512> error{};
  tokenizer_ = library_.new_tokenizer(&init, error.data(), error.size());
  if (tokenizer_ == nullptr) throw std::runtime_error(std::string("llguidance: ") + error.data());
}

GrammarEngine::~GrammarEngine() { library_.free_tokenizer(tokenizer_); }

std::shared_ptr<Grammar> GrammarEngine::compile(const std::string& kind, const std::string& text,
                                                std::vector<GrammarPart> parts) {
  if (text.find('\0') != std::string::npos) {
    throw std::invalid_argument("a grammar must not hold a NUL character");
  }
  std::unique_ptr<MaskMemory> memory;
  if (!parts.empty()) {
    memory = std::make_unique<MaskMemory>(std::move(parts));
    if (!memory->start().place.is_known()) memory = nullptr;
  }
  LlgConstraintInit init{};
  library_.set_defaults(&init, tokenizer_);
  init.tokenizer = tokenizer_;
  init.log_buffer_level = 0;
  init.log_stderr_level = 0;
  init.ff_tokens_ok = false;
  init.backtrack_ok = false;
  init.limits.max_items_in_row = limits_.row_items;
  init.limits.initial_lexer_fuel = limits_.compile_fuel;
  init.limits.step_lexer_fuel = limits_.step_fuel;
  init.limits.step_max_items = limits_.step_items;
  init.limits.max_lexer_states = limits_.lexer_states;
  init.limits.max_grammar_size = limits_.size;
  init.limits.verbose_errors = false;  // they would show the text so far
  LlgMatcher* matcher = nullptr;
  compilers_.run([&] { matcher = library_.new_matcher(&init, kind.c_str(), text.c_str()); });
  if (const char* error = library_.get_error(matcher)) {
    const std::string message = without_marks(error);
    library_.free_matcher(matcher);
    throw std::invalid_argument(message);
  }
  return std::make_shared<Grammar>(shared_from_this(), matcher, std::move(memory));
}

Grammar::Grammar(std::shared_ptr<GrammarEngine> engine, LlgMatcher* start,
                 std::unique_ptr<MaskMemory> memory)
    : engine_(std::move(engine)), start_(start), memory_(std::move(memory)) {}

Grammar::~Grammar() { engine_->library().free_matcher(start_); }

LlgMatcher* Grammar::clone() const {
  const std::lock_guard lock(mutex_);
  return engine_->library().clone_matcher(start_);
}

std::shared_ptr<TokenMask> Grammar::start(std::shared_ptr<const CompiledTriggers> triggers) const {
  auto matcher = std::make_unique<LlguidanceMatcher>(shared_from_this());
  auto watch = triggers == nullptr ? nullptr : std::make_unique<TriggerWatch>(std::move(triggers));
  return std::make_shared<TokenMask>(std::move(matcher), std::move(watch));
}

std::shared_ptr<const CompiledTriggers> GrammarEngine::compile_triggers(
    std::vector<GrammarTrigger> triggers, QuietSpan quiet, bool may_resume,
    bool lists_tokens) const {
  for (const GrammarTrigger& trigger : triggers) {
    if (trigger.token >= n_vocab() || (trigger.token < 0) == trigger.word.empty()) {
      throw std::invalid_argument("a trigger is either a token or a word");
    }
  }
  return std::make_shared<const CompiledTriggers>(pieces_, std::move(triggers), std::move(quiet),
                                                  may_resume, lists_tokens);
}

}  // namespace unpaced
