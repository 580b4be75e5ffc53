// How deep a JSON text nests and how many things it holds, told without making any of them.
#pragma once

#include <cstddef>
#include <string_view>

namespace unpaced {

struct JsonShape {
  std::size_t depth = 0;     // arrays and objects around the innermost value, it included
  std::size_t n_values = 0;  // all but numbers; keys count
  std::size_t n_numbers = 0;
};

// One pass; checks nothing. Of a text that is no JSON it tells something, too.
[[nodiscard]] JsonShape json_shape(std::string_view text) noexcept;

}  // namespace unpaced
