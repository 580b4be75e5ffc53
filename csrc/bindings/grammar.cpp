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

  nb::class_<TriggerPlan>(m, "TriggerPlan");

  nb::class_<Grammar>(m, "Grammar")
      .def("start", &Grammar::start, "plan"_a.none(), nb::call_guard<nb::gil_scoped_release>());

  nb::class_<GrammarEngine>(m, "GrammarEngine")
      .def(
          "compile",
          [](GrammarEngine& self, const std::string& kind, const nb::bytes& text) {
            const std::string source(view(text));
            const nb::gil_scoped_release release;
            return self.compile(kind, source);
          },
          "kind"_a, "text"_a)
      .def(
          "plan_triggers",
          [](const GrammarEngine& self, std::vector<GrammarTrigger> triggers,
             const nb::bytes& quiet_start, const nb::bytes& quiet_end, bool is_quiet,
             bool may_resume, bool lists_tokens) {
            QuietSpan quiet{std::string(view(quiet_start)), std::string(view(quiet_end)), is_quiet};
            const nb::gil_scoped_release release;
            return self.plan_triggers(std::move(triggers), std::move(quiet), may_resume,
                                      lists_tokens);
          },
          "triggers"_a, "quiet_start"_a, "quiet_end"_a, "is_quiet"_a, "may_resume"_a,
          "lists_tokens"_a);
}

}  // namespace unpaced
