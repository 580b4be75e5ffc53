// The engine as the front end holds it: decode thread, task threads, the requests on loan. All
// methods on the front end's one thread unless they say otherwise.
#pragma once

#include <chrono>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/task_pool.h"
#include "decode/decode_thread.h"
#include "grammar/grammar_engine.h"
#include "model/engine_config.h"
#include "model/model.h"
#include "request/reasoning_budget.h"
#include "request/stop_strings.h"
#include "slots/slot_action.h"
#include "slots/slot_file.h"
#include "vocabulary/vocabulary.h"

namespace unpaced {

class Engine {
 public:
  static constexpr std::size_t kLongBytes = 16384;

  explicit Engine(EngineConfig config);
  ~Engine() { stop(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the decode thread, which loads the model; state() tells how it went.
  void start();
  // Ends everything; blocks until the decode thread has freed the model.
  void stop() noexcept;
  // As stop(), any thread; false: the decode thread still did not come to an end after `limit`.
  [[nodiscard]] bool stop_within(std::chrono::nanoseconds limit) noexcept;
  // Gives the decode thread up, see DecodeThread::abandon(): every request and action ends for the
  // reader with `reason`. True: this object must not be destroyed.
  bool abandon(const char* why, FinishReason reason) noexcept;

  // Takes the spec; throws std::invalid_argument (naming the field) or std::out_of_range for values
  // the native side must not see. False: too many requests, or not ready.
  [[nodiscard]] bool submit(std::unique_ptr<RequestSpec> spec);
  [[nodiscard]] bool cancel(RequestId id) noexcept { return decode_thread_.cancel(id); }
  // The action's kFinished event says that it is done. False: too many wait, or not ready. Throws
  // std::invalid_argument if there is no such slot.
  [[nodiscard]] bool submit(const std::shared_ptr<SlotAction>& action);
  // The ring's reader, whichever thread that is: up to `max` events.
  [[nodiscard]] std::size_t pop(TokenEvent* out, std::size_t max) noexcept;
  // Another thread pops from here on; what orders the two is the caller's.
  void change_reader() noexcept { decode_thread_.change_reader(); }
  // What was popped since the last time, but for tokens: frees the specs of finished requests, and
  // appends the ends of those that the decode thread will never end.
  void settle(std::vector<TokenEvent>& events);
  // Whether there are events to pop, as far as can be said while the decode thread runs.
  [[nodiscard]] bool has_events() const noexcept;
  [[nodiscard]] DecodeThread& decode_thread() noexcept { return decode_thread_; }

  // Any thread. Fraction loaded, 0 .. 1.
  [[nodiscard]] float load_progress() const noexcept;
  // Any thread, once ready; throw std::logic_error before that or after stop().
  // On the calling thread where the text is at most Vocabulary::kAnyStackBytes long, else on one of
  // a pool, which leaves a busy core to others if the text is longer than kLongBytes.
  [[nodiscard]] std::vector<std::int32_t> tokenize(std::string_view text, bool add_special,
                                                   bool parse_special);
  [[nodiscard]] std::string detokenize(std::span<const std::int32_t> tokens, bool special);
  [[nodiscard]] DryBreakers make_dry_breakers(std::span<const std::string> breakers);
  // Tenths of a second for a large vocabulary. Throws std::invalid_argument where no token ends a
  // text.
  [[nodiscard]] std::shared_ptr<InfillVocabulary> make_infill_vocabulary() const;
  // Control tokens count as text where `special` is set or `preserved` has them. Throws
  // std::invalid_argument.
  [[nodiscard]] TokenText token_text(bool special, std::vector<TokenId> preserved) const;
  // `prompt`: tokens that the answer begins with and the prompt holds. Throws
  // std::invalid_argument.
  [[nodiscard]] std::shared_ptr<ReasoningBudget> make_reasoning_budget(
      CompiledBudget plan, std::span<const TokenId> prompt) const;
  // Any thread, once ready; throw SlotFileError. See slot_file.h. The action holds no state after
  // it is written.
  [[nodiscard]] std::size_t write_slot_file(SlotAction& action, const std::string& directory,
                                            const std::string& name) const;
  // lora_scales: of the adapters that the state must have been computed with.
  [[nodiscard]] std::size_t read_slot_file(SlotAction& action, const std::string& directory,
                                           const std::string& name,
                                           std::vector<float> lora_scales) const;
  [[nodiscard]] GrammarVocabulary grammar_vocabulary();
  [[nodiscard]] const Vocabulary& vocabulary() const;
  [[nodiscard]] const TokenPieces& token_pieces(bool special) const;
  // Of the loaded model; constant while the engine is ready.
  [[nodiscard]] const llama_model* model() const;
  // Where the token loop runs; constant while the engine is ready.
  [[nodiscard]] const DecodeLoopReport& decode_loop() const noexcept { return decode_loop_; }
  [[nodiscard]] const EngineConfig& config() const noexcept { return config_; }

 private:
  void check(const RequestSpec& spec) const;
  void close() noexcept;
  // Throws std::logic_error where the model is going.
  [[nodiscard]] std::shared_lock<std::shared_mutex> use_vocabulary();
  // Of the model with its adapters in force to this degree.
  [[nodiscard]] std::uint64_t identity_with(std::span<const float> lora_scales) const noexcept;

  const EngineConfig config_;
  LoadProgress load_progress_;
  TaskPool tasks_;
  TaskPool long_tasks_{10};
  std::shared_mutex vocabulary_users_;  // shared by those who use it, held when the model goes
  // Made by the decode thread while it loads, read by others once the state is kReady.
  std::unique_ptr<Vocabulary> vocabulary_;
  std::shared_ptr<const TokenPieces> pieces_;
  std::shared_ptr<const TokenPieces> pieces_special_;
  const llama_model* llama_model_ = nullptr;
  DecodeLoopReport decode_loop_;
  std::uint64_t model_identity_ = 0;
  const std::vector<float> lora_scales_;  // at the start
  std::unordered_map<RequestId, std::shared_ptr<SlotAction>> actions_;
  std::unordered_map<RequestId, std::unique_ptr<RequestSpec>> on_loan_;
  bool is_abandoned_ = false;
  bool is_closed_ = false;  // nothing is taken from the decode thread any more
  FinishReason abandoned_reason_ = FinishReason::kNone;
  std::vector<RequestId> abandoned_;  // requests and actions that have had no last event yet
  DecodeThread decode_thread_;        // last: its thread uses the others
};

}  // namespace unpaced
