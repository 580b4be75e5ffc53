#include "bindings/token_event.h"

#include "bindings/python.h"

namespace unpaced {
namespace {

nb::list alternatives_of(const PyTokenEvent& event) {
  nb::list pairs;
  for (const TokenLogprob& pair : event.alternatives) {
    pairs.append(nb::make_tuple(pair.token, pair.logprob));
  }
  return pairs;
}

}  // namespace

void bind_token_event(nb::module_& m) {
  using E = PyTokenEvent;
  nb::class_<E>(m, "TokenEvent")
      .def_prop_ro("request_id", [](const E& e) { return e.record.request_id; })
      .def_prop_ro("sequence_number", [](const E& e) { return e.record.sequence_number; })
      .def_prop_ro("slot", [](const E& e) { return e.record.slot; })
      .def_prop_ro("kind", [](const E& e) { return static_cast<int>(e.record.kind); })
      .def_prop_ro("t_us", [](const E& e) { return e.record.t_us; })
      .def_prop_ro("finish_reason",
                   [](const E& e) { return static_cast<int>(e.record.finish_reason); })
      .def_prop_ro("token", [](const E& e) { return e.record.token.token; })
      .def_prop_ro("logprob", [](const E& e) { return e.record.token.logprob; })
      .def_prop_ro("n_decoded",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_decoded
                                                                  : e.record.token.n_decoded;
                   })
      .def_prop_ro("n_prompt", [](const E& e) { return e.record.prompt.n_prompt; })
      .def_prop_ro("n_cached", [](const E& e) { return e.record.prompt.n_cached; })
      .def_prop_ro("n_processed", [](const E& e) { return e.record.prompt.n_processed; })
      .def_prop_ro("n_idle_saved", [](const E& e) { return e.record.prompt.n_idle_saved; })
      .def_prop_ro("updated_cache", [](const E& e) { return e.record.prompt.updated_cache != 0; })
      .def_prop_ro("n_kept_copied", [](const E& e) { return e.record.prompt.n_kept_copied; })
      .def_prop_ro("n_kept_computed", [](const E& e) { return e.record.prompt.n_kept_computed; })
      .def_prop_ro("copy_us", [](const E& e) { return e.record.prompt.copy_us; })
      .def_prop_ro("n_shifts",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_shifts
                                                                  : e.record.token.n_shifts;
                   })
      .def_prop_ro("n_cells",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_cells
                                                                  : e.record.token.n_cells;
                   })
      .def_prop_ro("status", [](const E& e) { return e.record.finished.status; })
      .def_prop_ro("cut_line", [](const E& e) { return e.record.finished.cut_line; })
      .def_prop_ro("cells_us", [](const E& e) { return e.record.finished.cells_us; })
      .def_prop_ro("top_logprobs", &alternatives_of,
                   nb::sig("def top_logprobs(self) -> list[tuple[int, float]]"));
}

}  // namespace unpaced
