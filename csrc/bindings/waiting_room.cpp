// Connections that wait to be served.
#include "connections/waiting_room.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "bindings/python.h"

namespace unpaced {

void bind_waiting_room(nb::module_& m) {
  nb::class_<WaitingRoom>(m, "WaitingRoom")
      .def(
          "__init__",
          [](WaitingRoom* self, std::size_t n_max, const nb::bytes& refusal) {
            new (self) WaitingRoom(n_max, std::string(view(refusal)));
          },
          "n_max"_a, "refusal"_a)
      .def(
          "accept",
          [](WaitingRoom& room, int listener, std::int64_t limit_ns) {
            // Python's lock is kept: a thread that got it meanwhile, with work beside the event
            // loop, would keep the loop waiting for longer than the few milliseconds of this call.
            const Arrivals arrivals = room.accept(listener, std::chrono::nanoseconds(limit_ns));
            return std::pair(arrivals.n_refused, arrivals.are_files_missing);
          },
          "listener"_a, "limit_ns"_a)
      .def("take",
           [](WaitingRoom& room) {
             std::optional<Served> next = room.take();
             if (!next) throw nb::index_error("nobody waits");
             return std::pair(next->fd, to_bytes(next->first_bytes));
           })
      .def(
          "dismiss", [](WaitingRoom& room, const nb::bytes& answer) { room.dismiss(view(answer)); },
          "answer"_a)
      .def("__len__", &WaitingRoom::size);
}

}  // namespace unpaced
