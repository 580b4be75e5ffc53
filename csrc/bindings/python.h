// What the files that face Python share: nanobind, texts as bytes, and who binds what.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace unpaced {

inline std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

inline nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// nanobind's own conversion to std::string is for str.
inline std::vector<std::string> to_strings(const nb::list& texts) {
  std::vector<std::string> strings;
  for (const nb::handle text : texts) strings.emplace_back(view(nb::cast<nb::bytes>(text)));
  return strings;
}

void bind_config(nb::module_& m);
void bind_memory_plan(nb::module_& m);
void bind_grammar(nb::module_& m);
void bind_request(nb::module_& m);
void bind_slot_action(nb::module_& m);
void bind_token_event(nb::module_& m);
void bind_token_frames(nb::module_& m);
void bind_waiting_room(nb::module_& m);
void bind_engine(nb::module_& m);

}  // namespace unpaced
