// What the front end has a slot do.
#include "bindings/python.h"
#include "engine/engine.h"

namespace unpaced {

void bind_slot_action(nb::module_& m) {
  nb::class_<SlotAction>(m, "SlotAction")
      .def(
          "__init__",
          [](SlotAction* self, RequestId id, int kind, std::int32_t slot) {
            if (kind < 0 || kind > static_cast<int>(SlotActionKind::kErase)) {
              throw nb::value_error("kind: unknown");
            }
            new (self)
                SlotAction{.id = id, .kind = static_cast<SlotActionKind>(kind), .slot = slot};
          },
          "id"_a, "kind"_a, "slot"_a)
      .def("drop_state",
           [](SlotAction& self) {
             const nb::gil_scoped_release release;
             self.state = {};
           })
      .def_ro("id", &SlotAction::id)
      .def_rw("cache_domain", &SlotAction::cache_domain)
      .def_ro("n_tokens", &SlotAction::n_tokens)
      .def_ro("succeeded", &SlotAction::succeeded);
}

}  // namespace unpaced
