// The engine as Python drives it.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/compiled_stops.h"
#include "bindings/py_engine.h"
#include "grammar/grammar_engine.h"

namespace unpaced {
namespace {

// Token ids as an array of C ints: a list of millions of them takes long to make.
nb::bytes tokenize_array(PyEngine& self, const nb::bytes& text, bool add_special,
                         bool parse_special) {
  const std::string_view bytes = view(text);
  std::vector<std::int32_t> tokens;
  {
    const nb::gil_scoped_release release;
    tokens = self.get().tokenize(bytes, add_special, parse_special);
  }
  return nb::bytes(tokens.data(), tokens.size() * sizeof tokens[0]);
}

std::vector<std::vector<std::int32_t>> tokenize_each(PyEngine& self, const nb::list& texts,
                                                     bool add_special, bool parse_special) {
  std::vector<std::string_view> views;
  for (const nb::handle text : texts) views.push_back(view(nb::borrow<nb::bytes>(text)));
  const nb::gil_scoped_release release;
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::string_view text : views) {
    tokens.push_back(self.get().tokenize(text, add_special, parse_special));
  }
  return tokens;
}

nb::list token_pieces(PyEngine& self, bool special) {
  const TokenPieces& all = self.get().token_pieces(special);
  nb::list pieces;
  for (TokenId id = 0; id < all.size(); ++id) {
    pieces.append(nb::bytes(all[id].data(), all[id].size()));
  }
  return pieces;
}

std::shared_ptr<GrammarEngine> make_grammar_engine(PyEngine& self, const std::string& library,
                                                   const std::string& version) {
  const nb::gil_scoped_release release;
  return std::make_shared<GrammarEngine>(self.get().grammar_vocabulary(), library, version);
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<PyEngine>(m, "Engine")
      .def(nb::init<const EngineConfig&>(), "config"_a)
      .def("start", [](PyEngine& self) { self.get().start(); })
      .def(
          "stop_within",
          [](PyEngine& self, double seconds) {
            const std::chrono::duration<double> limit(seconds);
            return self.stop_within(std::chrono::duration_cast<std::chrono::nanoseconds>(limit));
          },
          "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "abandon",
          [](PyEngine& self, const nb::bytes& why, int reason) {
            self.abandon(std::string(view(why)), static_cast<FinishReason>(reason));
          },
          "why"_a, "reason"_a)
      .def(
          "submit",
          [](PyEngine& self, const RequestSpec& spec) {
            return self.get().submit(std::make_unique<RequestSpec>(spec));
          },
          "spec"_a)
      .def("expect", [](PyEngine& self) { self.get().decode_thread().expect(); })
      .def(
          "cancel", [](PyEngine& self, RequestId id) { return self.get().cancel(id); },
          "request_id"_a)
      .def(
          "act",
          [](PyEngine& self, const std::shared_ptr<SlotAction>& action) {
            return self.get().submit(action);
          },
          "action"_a)
      .def(
          "write_slot_file",
          [](PyEngine& self, const std::shared_ptr<SlotAction>& action,
             const std::string& directory, const std::string& name) {
            const nb::gil_scoped_release release;
            return self.get().write_slot_file(*action, directory, name);
          },
          "action"_a, "directory"_a, "name"_a)
      .def(
          "read_slot_file",
          [](PyEngine& self, const std::shared_ptr<SlotAction>& action,
             const std::string& directory, const std::string& name,
             std::vector<float> lora_scales) {
            const nb::gil_scoped_release release;
            return self.get().read_slot_file(*action, directory, name, std::move(lora_scales));
          },
          "action"_a, "directory"_a, "name"_a, "lora_scales"_a)
      .def(
          "n_cells",
          [](PyEngine& self, std::int32_t slot) {
            return self.get().decode_thread().n_cells(slot);
          },
          "slot"_a)
      .def(
          "n_cells_shared",
          [](PyEngine& self, std::int32_t slot) {
            return self.get().decode_thread().n_cells_shared(slot);
          },
          "slot"_a)
      .def("drain", &PyEngine::drain,
           nb::sig("def drain(self) -> tuple[list[TokenEvent], "
                   "list[collections.abc.Callable[[], None]]]"))
      .def("frame", &PyEngine::frame, "request_id"_a, "frames"_a, "listener"_a,
           nb::sig("def frame(self, request_id: int, frames: TokenFrames, "
                   "listener: collections.abc.Callable[[], None]) -> bool"))
      .def("attach", &PyEngine::attach, "request_id"_a, "socket"_a)
      .def("unframe", &PyEngine::unframe, "request_id"_a,
           nb::sig("def unframe(self, request_id: int) -> bytes"))
      .def("park", &PyEngine::park)
      .def("fileno", [](PyEngine& self) { return self.get().decode_thread().reader_wakeup().fd(); })
      .def("state",
           [](PyEngine& self) { return static_cast<int>(self.get().decode_thread().state()); })
      .def("error", [](PyEngine& self) { return to_bytes(self.get().decode_thread().error()); })
      .def("load_progress", [](PyEngine& self) { return self.get().load_progress(); })
      .def("gpu_test_age_us",
           [](PyEngine& self) { return self.get().decode_thread().gpu_test_age_us(); })
      .def("gpu_test_compiles",
           [](PyEngine& self) { return self.get().decode_thread().gpu_test_compiles(); })
      .def("is_lost", [](PyEngine& self) { return self.get().decode_thread().is_lost(); })
      .def("progress", [](PyEngine& self) { return self.get().decode_thread().progress(); })
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, typing.Any]"))
      .def("decode_loop", &decode_loop, nb::sig("def decode_loop(self) -> dict[str, typing.Any]"))
      .def("model_info", &model_info, nb::sig("def model_info(self) -> dict[str, typing.Any]"))
      .def("make_grammar_engine", &make_grammar_engine, "library"_a, "version"_a)
      .def("token_pieces", &token_pieces, "special"_a,
           nb::sig("def token_pieces(self, special: bool) -> list[bytes]"))
      .def(
          "tokenize",
          [](PyEngine& self, const nb::bytes& text, bool add_special, bool parse_special) {
            return self.get().tokenize(view(text), add_special, parse_special);
          },
          "text"_a, "add_special"_a, "parse_special"_a)
      .def("tokenize_array", &tokenize_array, "text"_a, "add_special"_a, "parse_special"_a)
      .def("tokenize_each", &tokenize_each, "texts"_a, "add_special"_a, "parse_special"_a,
           nb::sig("def tokenize_each(self, texts: list[bytes], add_special: bool, "
                   "parse_special: bool) -> list[list[int]]"))
      .def(
          "detokenize",
          [](PyEngine& self, const std::vector<std::int32_t>& tokens, bool special) {
            std::string text;
            {
              const nb::gil_scoped_release release;
              text = self.get().detokenize(tokens, special);
            }
            return to_bytes(text);
          },
          "tokens"_a, "special"_a)
      .def(
          "make_stop_strings",
          [](PyEngine& self, const nb::list& stops, bool special, std::vector<TokenId> preserved) {
            const std::vector<std::string> strings = to_strings(stops);
            const nb::gil_scoped_release release;
            return compile_stops(std::make_shared<const StopStrings>(
                                     self.get().token_text(special, std::move(preserved)), strings),
                                 self.get().decode_loop().loop != DecodeLoop::kHost);
          },
          "stops"_a, "special"_a, "preserved"_a,
          nb::sig("def make_stop_strings(self, stops: list[bytes], special: bool, "
                  "preserved: collections.abc.Sequence[int]) -> StopStrings"))
      .def("make_infill_vocabulary",
           [](PyEngine& self) {
             const nb::gil_scoped_release release;
             return self.get().make_infill_vocabulary();
           })
      .def(
          "make_text_limits",
          [](PyEngine& self, std::int32_t n_indent, std::int64_t t_max_ms, bool special,
             std::vector<TokenId> preserved) {
            return TextLimits(self.get().token_text(special, std::move(preserved)), n_indent,
                              t_max_ms);
          },
          "n_indent"_a, "t_max_ms"_a, "special"_a, "preserved"_a)
      .def(
          "make_reasoning_budget",
          [](PyEngine& self, std::vector<TokenId> start, std::vector<std::vector<TokenId>> ends,
             std::vector<TokenId> forced, std::int32_t n_tokens, bool suspends_mask,
             const std::vector<TokenId>& prompt) {
            return self.get().make_reasoning_budget({.starts = {std::move(start)},
                                                     .ends = std::move(ends),
                                                     .forced = std::move(forced),
                                                     .n_tokens = n_tokens,
                                                     .suspends_mask = suspends_mask},
                                                    prompt);
          },
          "start"_a, "ends"_a, "forced"_a, "n_tokens"_a, "suspends_mask"_a, "prompt"_a)
      .def(
          "make_dry_breakers",
          [](PyEngine& self, const std::vector<std::string>& breakers) {
            const nb::gil_scoped_release release;
            return self.get().make_dry_breakers(breakers);
          },
          "breakers"_a);
}

}  // namespace unpaced
