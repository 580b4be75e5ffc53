// Grammars and the masks of tokens that they leave.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python.h"
#include "grammar/grammar_engine.h"

namespace unpaced {
namespace {

nb::bytes mask_bytes(TokenMask& mask) {
  const auto words = mask.words();
  return nb::bytes(words.data(), words.size_bytes());
}

}  // namespace

void bind_grammar(nb::module_& m) {
  nb::class_<TokenMask>(m, "TokenMask")
      .def_prop_ro("failure", [](const TokenMask& self) { return to_bytes(self.failure()); })
      .def_prop_ro("n_masks", &TokenMask::n_masks)
      .def_prop_ro("n_checks", &TokenMask::n_checks)
      .def_prop_ro("mask_ns_total", &TokenMask::mask_ns_total)
      // What the drawing thread calls; for tests and benchmarks, never on a mask in use.
      .def(
          "check",
          [](TokenMask& self, TokenId token) { return static_cast<int>(self.check(token)); },
          "token"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("accept", &TokenMask::accept, "token"_a)
      .def("words", &mask_bytes);

  nb::class_<GrammarTrigger>(m, "GrammarTrigger")
      .def(
          "__init__",
          [](GrammarTrigger* self, TokenId token, const nb::bytes& word, bool inside) {
            new (self) GrammarTrigger{token, std::string(view(word)), inside};
          },
          "token"_a, "word"_a, "inside"_a);

  nb::class_<CompiledTriggers>(m, "CompiledTriggers");

  nb::class_<GrammarPart>(m, "GrammarPart")
      .def(
          "__init__",
          [](GrammarPart* self, std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges,
             std::vector<std::vector<std::uint32_t>> choices, std::uint32_t low,
             std::int64_t high) {
            new (self)
                GrammarPart{std::move(ranges), std::move(choices), low,
                            high < 0 ? GrammarPart::kEndless : static_cast<std::uint32_t>(high)};
          },
          "ranges"_a, "choices"_a, "low"_a, "high"_a);

  // Where texts are in a grammar; the engine's sequences have theirs inside. For tests.
  nb::class_<TextPlaces>(m, "TextPlaces")
      .def(nb::init<std::vector<GrammarPart>>(), "parts"_a)
      .def(
          "place",
          [](TextPlaces& self, const nb::bytes& text) {
            const TextPlaces::Place place = self.advance(self.start(), view(text));
            return std::make_pair(place.is_known(), std::make_pair(place.number, place.bytes));
          },
          "text"_a);

  nb::class_<Grammar>(m, "Grammar")
      .def_prop_ro("n_kept_masks",
                   [](const Grammar& self) {
                     return self.memory() == nullptr ? 0 : self.memory()->n_kept();
                   })
      .def("start", &Grammar::start, "triggers"_a.none(), nb::call_guard<nb::gil_scoped_release>());

  nb::class_<GrammarEngine>(m, "GrammarEngine")
      .def(
          "compile",
          [](GrammarEngine& self, const std::string& kind, const nb::bytes& text,
             std::vector<GrammarPart> parts) {
            const std::string source(view(text));
            const nb::gil_scoped_release release;
            return self.compile(kind, source, std::move(parts));
          },
          "kind"_a, "text"_a, "parts"_a)
      .def(
          "compile_triggers",
          [](const GrammarEngine& self, std::vector<GrammarTrigger> triggers,
             const nb::bytes& quiet_start, const nb::bytes& quiet_end, bool is_quiet,
             bool may_resume, bool lists_tokens) {
            QuietSpan quiet{std::string(view(quiet_start)), std::string(view(quiet_end)), is_quiet};
            const nb::gil_scoped_release release;
            return self.compile_triggers(std::move(triggers), std::move(quiet), may_resume,
                                         lists_tokens);
          },
          "triggers"_a, "quiet_start"_a, "quiet_end"_a, "is_quiet"_a, "may_resume"_a,
          "lists_tokens"_a);
}

}  // namespace unpaced
