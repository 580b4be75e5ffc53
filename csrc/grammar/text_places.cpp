#include "grammar/text_places.h"

#include <algorithm>
#include <stdexcept>

namespace unpaced {
namespace {

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * kMultiplier;
  return hash ^ (hash >> 29U);
}

// Bytes of the character that begins with `first`; 0: none does.
std::size_t length_of(std::uint32_t first) noexcept {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// The character of UTF-8 bytes, the first in the highest of `n` bytes.
std::uint32_t character_of(std::uint32_t bytes, std::size_t n) noexcept {
  if (n == 1) return bytes;
  std::uint32_t character = (bytes >> (8 * (n - 1))) & (0x7FU >> n);
  for (std::size_t i = n - 1; i-- > 0;) character = character << 6U | ((bytes >> (8 * i)) & 0x3FU);
  return character;
}

}  // namespace

std::size_t TextPlaces::CellHash::operator()(const Cell& cell) const noexcept {
  const auto high = static_cast<std::uint64_t>(cell.part) << 32U | cell.next;
  return mix(mix(0, high), static_cast<std::uint64_t>(cell.low) << 32U | cell.high);
}

std::size_t TextPlaces::HeadsHash::operator()(const Heads& heads) const noexcept {
  std::uint64_t hash = heads.size();
  for (const std::uint32_t head : heads) hash = mix(hash, head);
  return hash;
}

TextPlaces::TextPlaces(std::vector<GrammarPart> parts, const TextPlacesLimits& limits)
    : parts_(std::move(parts)), limits_(limits) {
  if (parts_.empty()) throw std::invalid_argument("a grammar without parts");
  for (const GrammarPart& part : parts_) {
    for (const auto& choice : part.choices) {
      for (const std::uint32_t inner : choice) {
        if (inner >= parts_.size()) throw std::invalid_argument("a grammar without a part of it");
      }
    }
  }
  clear();
}

void TextPlaces::clear() {
  cells_.assign(1, Cell{});  // kEnd
  seen_.assign(1, 0);
  cell_numbers_.clear();
  places_.clear();
  place_numbers_.clear();
  steps_.clear();
  n_characters_ = 0;
  start_ = {};
  is_full_ = false;
}

TextPlaces::Place TextPlaces::start() {
  if (!start_.is_known()) {
    todo_.assign(1, cell({0, parts_[0].low, parts_[0].high, kEnd}));
    start_ = {place(), 0};
  }
  return start_;
}

TextPlaces::Place TextPlaces::advance(Place place, std::string_view text) {
  for (const char letter : text) {
    if (!place.is_known()) break;
    const auto byte = static_cast<std::uint8_t>(letter);
    const std::uint32_t bytes = place.bytes << 8U | byte;
    std::size_t n = 1;
    while (n < 4 && (bytes >> (8 * n)) != 0) ++n;
    const std::size_t length = length_of((bytes >> (8 * (n - 1))) & 0xFFU);
    if (length == 0 || (n > 1 && (byte & 0xC0U) != 0x80)) return {};
    if (n < length) {
      place.bytes = bytes;
    } else {
      place = {step(place.number, character_of(bytes, length)), 0};
    }
  }
  return place;
}

std::uint32_t TextPlaces::step(std::uint32_t from, std::uint32_t character) {
  const std::uint64_t key = static_cast<std::uint64_t>(from) << 32U | character;
  if (const auto known = steps_.find(key); known != steps_.end()) return known->second;
  todo_.clear();
  for (const std::uint32_t head : places_[from]) {
    if (head == kEnd || !has(parts_[cells_[head].part], character)) continue;
    todo_.push_back(cells_[head].next);
  }
  if (todo_.empty()) return kLost;
  const std::uint32_t to = place();
  if (is_full_) return kLost;
  if (steps_.size() == limits_.steps) {
    is_full_ = true;
    return kLost;
  }
  steps_.emplace(key, to);  // kLost too: it was too much work, and would be again
  return to;
}

std::uint32_t TextPlaces::cell(const Cell& cell) {
  work_ += 1;
  const auto [found, is_new] = cell_numbers_.try_emplace(cell, cells_.size());
  if (is_new) {
    cells_.push_back(cell);
    seen_.push_back(0);
  }
  return found->second;
}

std::uint32_t TextPlaces::list(const std::vector<std::uint32_t>& parts, std::uint32_t next) {
  for (std::size_t i = parts.size(); i-- > 0 && work_ <= limits_.work;) {
    next = cell({parts[i], parts_[parts[i]].low, parts_[parts[i]].high, next});
  }
  return next;
}

std::uint32_t TextPlaces::place() {
  search_ += 1;
  work_ = 0;
  Heads heads;
  while (!todo_.empty()) {
    const std::uint32_t number = todo_.back();
    todo_.pop_back();
    if (seen_[number] == search_) continue;
    seen_[number] = search_;
    const Cell cell = cells_[number];
    if (number == kEnd || !parts_[cell.part].ranges.empty()) {
      heads.push_back(number);
      continue;
    }
    work_ += 1;
    open(cell);
    if (work_ > limits_.work) return kLost;
    if (cells_.size() > limits_.cells) {
      is_full_ = true;
      return kLost;
    }
  }
  std::ranges::sort(heads);
  if (const auto known = place_numbers_.find(heads); known != place_numbers_.end()) {
    return known->second;
  }
  n_characters_ += heads.size();
  if (places_.size() == limits_.places || n_characters_ > limits_.characters) {
    is_full_ = true;
    return kLost;
  }
  const auto number = static_cast<std::uint32_t>(places_.size());
  places_.push_back(heads);
  place_numbers_.emplace(std::move(heads), number);
  return number;
}

void TextPlaces::open(const Cell& from) {
  if (from.low == 0) todo_.push_back(from.next);
  if (from.high == 0) return;
  const std::uint32_t low = from.low == 0 ? 0 : from.low - 1;
  const std::uint32_t high = from.high == GrammarPart::kEndless ? from.high : from.high - 1;
  const std::uint32_t rest = high == 0 ? from.next : cell({from.part, low, high, from.next});
  for (const auto& choice : parts_[from.part].choices) {
    if (work_ > limits_.work) return;  // place() gives up
    todo_.push_back(list(choice, rest));
  }
}

bool TextPlaces::has(const GrammarPart& part, std::uint32_t character) const noexcept {
  const auto above = std::ranges::upper_bound(part.ranges, character, {},
                                              &std::pair<std::uint32_t, std::uint32_t>::first);
  return above != part.ranges.begin() && std::prev(above)->second >= character;
}

}  // namespace unpaced
