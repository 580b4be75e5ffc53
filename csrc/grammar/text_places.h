// Where texts are in a GBNF grammar, as numbers: where two texts are at the same place, the same
// texts can follow. llguidance's own state cannot be asked for.
//
// A place is what llama.cpp's grammar keeps of a text (llama.cpp 0c1e57098 src/llama-grammar.cpp):
// every character that may come next, each with all that must follow it, as a list of cells.
// Lists, places and steps between them are kept, so that one is a number, and a known step a look
// into a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace unpaced {

// A part of a grammar. With `ranges`: one character out of them (first and last code points,
// ascending). Else one of `choices`, each of which is parts one after the other, `low` to `high`
// times.
struct GrammarPart {
  static constexpr std::uint32_t kEndless = std::numeric_limits<std::uint32_t>::max();

  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  std::vector<std::vector<std::uint32_t>> choices;
  std::uint32_t low = 1;
  std::uint32_t high = 1;
};

struct TextPlacesLimits {  // together about 6 MB
  std::size_t cells = 30'000;
  std::size_t places = 10'000;
  std::size_t steps = 50'000;
  std::size_t characters = 200'000;  // that may come next, of all places
  std::size_t work = 10'000;         // cells looked up for a step: about a millisecond
};

// One thread at a time.
class TextPlaces {
 public:
  // A place, and the first bytes of a character that is not complete.
  struct Place {
    std::uint32_t number = kLost;
    std::uint32_t bytes = 0;

    // False: nothing is known of the text. The grammar is too large, or recurs on the left.
    [[nodiscard]] bool is_known() const noexcept { return number != kLost; }
    bool operator==(const Place&) const = default;
  };

  // `parts`: the first one is the grammar's root; they refer to each other by their index. Throws
  // std::invalid_argument if one refers to none.
  explicit TextPlaces(std::vector<GrammarPart> parts, const TextPlacesLimits& limits = {});

  [[nodiscard]] Place start();
  // Behind `text`, which the grammar allows there.
  [[nodiscard]] Place advance(Place place, std::string_view text);
  // Something did not fit: clear() makes room, and invalidates every place.
  [[nodiscard]] bool is_full() const noexcept { return is_full_; }
  void clear();

 private:
  static constexpr std::uint32_t kLost = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t kEnd = 0;  // the empty list, as if it were a cell

  struct Cell {  // a part, `low` to `high` times, and then the list of cell `next`
    std::uint32_t part = 0;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t next = kEnd;
    bool operator==(const Cell&) const = default;
  };
  using Heads = std::vector<std::uint32_t>;  // cells of characters, and kEnd; ascending
  struct CellHash {
    [[nodiscard]] std::size_t operator()(const Cell& cell) const noexcept;
  };
  struct HeadsHash {
    [[nodiscard]] std::size_t operator()(const Heads& heads) const noexcept;
  };

  [[nodiscard]] std::uint32_t step(std::uint32_t place, std::uint32_t character);
  [[nodiscard]] std::uint32_t cell(const Cell& cell);
  [[nodiscard]] std::uint32_t list(const std::vector<std::uint32_t>& parts, std::uint32_t next);
  [[nodiscard]] std::uint32_t place();  // what todo_ opens to
  void open(const Cell& from);          // pushes what may come first to todo_
  [[nodiscard]] bool has(const GrammarPart& part, std::uint32_t character) const noexcept;

  const std::vector<GrammarPart> parts_;
  const TextPlacesLimits limits_;
  std::vector<Cell> cells_;
  std::unordered_map<Cell, std::uint32_t, CellHash> cell_numbers_;
  std::vector<Heads> places_;
  std::unordered_map<Heads, std::uint32_t, HeadsHash> place_numbers_;
  std::unordered_map<std::uint64_t, std::uint32_t> steps_;  // by place and character
  Place start_;
  std::size_t n_characters_ = 0;
  bool is_full_ = false;

  std::vector<std::uint32_t> todo_;
  std::vector<std::uint64_t> seen_;  // by cell: the search that saw it
  std::uint64_t search_ = 0;
  std::size_t work_ = 0;  // of this search
};

}  // namespace unpaced
