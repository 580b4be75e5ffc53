#include "bindings/token_frames.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace unpaced {
namespace {

SequenceState make_state(const nb::bytes& partial, std::int32_t n_decoded, std::int64_t last_us,
                         bool has_new_line) {
  return {std::string(view(partial)), n_decoded, last_us, has_new_line};
}

// `parts`: literals, and fields as their numbers.
FrameTemplate make_template(const nb::list& parts, bool skips_empty, bool keeps_text) {
  FrameTemplate form{.parts = {}, .end = {}, .skips_empty = skips_empty, .keeps_text = keeps_text};
  for (const nb::handle part : parts) {
    if (nb::isinstance<nb::bytes>(part)) {
      form.end += view(nb::cast<nb::bytes>(part));
      continue;
    }
    const int field = nb::cast<int>(part);
    if (field < 0 || field > static_cast<int>(FrameField::kNumber)) {
      throw nb::value_error("parts: no such field");
    }
    form.parts.push_back({std::exchange(form.end, {}), static_cast<FrameField>(field)});
  }
  return form;
}

nb::list checked_pieces(nb::list pieces) {
  // All are what the first one is: the engine makes them.
  if (nb::len(pieces) > 0 && !nb::isinstance<nb::bytes>(pieces[0])) {
    throw nb::type_error("pieces: bytes are expected");
  }
  return pieces;
}

void add(PyTokenFrames& self, TokenId token, std::int32_t n_decoded, std::int64_t t_us) {
  if (!self.add(token, n_decoded, t_us)) throw nb::index_error("no such token");
}

}  // namespace

std::string_view PyTokenFrames::piece_of(const void* list, TokenId token) noexcept {
  // Functions of the stable ABI, which read what nobody changes and count no references.
  PyObject* piece = PyList_GetItem(static_cast<PyObject*>(const_cast<void*>(list)), token);
  return {PyBytes_AsString(piece), static_cast<std::size_t>(PyBytes_Size(piece))};
}

void bind_token_frames(nb::module_& m) {
  using Frames = PyTokenFrames;
  nb::class_<Histogram>(m, "Histogram")
      .def(nb::init<std::vector<double>>(), "bounds"_a)
      .def("observe", &Histogram::observe, "value"_a)
      .def_prop_ro("bounds", &Histogram::bounds)
      .def_prop_ro("counts", &Histogram::counts)
      .def_prop_ro("total", &Histogram::total);
  nb::class_<Frames>(m, "TokenFrames")
      .def(
          "__init__",
          [](Frames* self, nb::list pieces, const nb::list& parts, bool skips_empty,
             bool keeps_text, const nb::bytes& partial, std::int32_t n_decoded,
             std::int64_t last_us, bool has_new_line, std::shared_ptr<Histogram> gaps) {
            new (self) Frames(
                checked_pieces(std::move(pieces)), make_template(parts, skips_empty, keeps_text),
                make_state(partial, n_decoded, last_us, has_new_line), std::move(gaps));
          },
          "pieces"_a, "parts"_a, nb::kw_only(), "skips_empty"_a, "keeps_text"_a, "partial"_a,
          "n_decoded"_a, "last_us"_a, "has_new_line"_a, "gaps"_a,
          nb::sig("def __init__(self, pieces: list[bytes], parts: list[bytes | int], *, "
                  "skips_empty: bool, keeps_text: bool, partial: bytes, n_decoded: int, "
                  "last_us: int, has_new_line: bool, gaps: Histogram) -> None"))
      .def("add", &add, "token"_a, "n_decoded"_a, "t_us"_a)
      .def("take", [](Frames& f) { return to_bytes(f.take()); })
      .def("take_chunk", [](Frames& f) { return to_bytes(f.take_chunk()); })
      .def("take_text", [](Frames& f) { return to_bytes(f.take_text()); })
      .def(
          "attach", [](Frames& f, int socket) { return f.attach(socket); }, "socket"_a)
      .def_prop_ro(
          "partial", [](const Frames& f) { return to_bytes(f.state().partial); },
          nb::sig("def partial(self) -> bytes"))
      .def_prop_ro("n_decoded", [](const Frames& f) { return f.state().n_decoded; })
      .def_prop_ro("last_us", [](const Frames& f) { return f.state().last_us; })
      .def_prop_ro("written_us", [](const Frames& f) { return f.written_us(); })
      .def_prop_ro("has_new_line", [](const Frames& f) { return f.state().has_new_line; });
}

}  // namespace unpaced
