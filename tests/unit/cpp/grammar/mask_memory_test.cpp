// Masks are kept by the place of a text, for all sequences of a grammar, as many as there is room.
#include "grammar/mask_memory.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace mask_memory_test {
namespace {

using unpaced::GrammarPart;
using unpaced::MaskMemory;
using unpaced::TextPlacesLimits;
using Words = MaskMemory::Words;

// root ::= "(" root ")" | [a-z]+
std::vector<GrammarPart> nested() {
  return {{.choices = {{1, 0, 2}, {3}}},
          {.ranges = {{'(', '('}}},
          {.ranges = {{')', ')'}}},
          {.choices = {{4}}, .low = 1, .high = GrammarPart::kEndless},
          {.ranges = {{'a', 'z'}}}};
}

MaskMemory::Mark at(MaskMemory& memory, const std::string& text) {
  return memory.advance(memory.start(), text);
}

bool has(MaskMemory& memory, const std::string& text, const Words& words) {
  const auto found = memory.find(at(memory, text));
  return found != nullptr && *found == words;
}

TEST(another_sequence_finds_the_mask_at_the_same_place) {
  MaskMemory memory(nested());
  CHECK(memory.find(at(memory, "(a")) == nullptr);
  memory.keep(at(memory, "(a"), Words{1, 2});
  CHECK(has(memory, "(xyz", {1, 2}));
  CHECK(memory.find(at(memory, "a")) == nullptr);
  CHECK(memory.find(at(memory, "((a")) == nullptr);
  memory.keep(at(memory, "(b"), Words{3, 4});  // the same mask, if the grammar is right
  CHECK(has(memory, "(a", {1, 2}));
}

TEST(the_oldest_masks_go) {
  MaskMemory memory(nested(), 2 * sizeof(std::uint32_t));
  memory.keep(at(memory, ""), Words{1});
  memory.keep(at(memory, "("), Words{2});
  CHECK(has(memory, "", {1}));
  memory.keep(at(memory, "(("), Words{3});
  CHECK(memory.find(at(memory, "")) == nullptr);
  CHECK(has(memory, "(", {2}));
  CHECK(has(memory, "((", {3}));
  memory.keep(at(memory, ""), Words{1, 2, 3});  // more than there is room for
  CHECK(memory.find(at(memory, "")) == nullptr);
}

TEST(a_text_outside_of_the_grammar_is_at_no_place) {
  MaskMemory memory(nested());
  const auto lost = at(memory, "a(");
  CHECK(!lost.place.is_known());
  memory.keep(lost, Words{1});
  CHECK(memory.find(lost) == nullptr);
  CHECK(!memory.advance(lost, "a").place.is_known());
}

TEST(where_places_do_not_fit_they_are_forgotten_with_the_next_sequence) {
  MaskMemory memory(nested(), 1000, {.places = 8});
  const auto early = at(memory, "(");
  memory.keep(early, Words{1});
  CHECK(!at(memory, "((((((((((((").place.is_known());
  // Begins anew: what was found before is of no use, and is not mistaken for something else.
  static_cast<void>(memory.start());
  CHECK(memory.find(early) == nullptr);
  CHECK(!memory.advance(early, "a").place.is_known());
  memory.keep(early, Words{2});
  CHECK(memory.find(at(memory, "(")) == nullptr);
  memory.keep(at(memory, "("), Words{3});
  CHECK(has(memory, "(", {3}));
}

TEST(every_limit_ends_in_a_lost_place) {
  const std::string deep(30, '(');
  for (const TextPlacesLimits& limits :
       {TextPlacesLimits{.cells = 40}, TextPlacesLimits{.places = 20},
        TextPlacesLimits{.steps = 20}, TextPlacesLimits{.characters = 20}}) {
    MaskMemory memory(nested(), 1000, limits);
    CHECK(!at(memory, deep).place.is_known());
    CHECK(at(memory, "(((a").place.is_known());
  }
  MaskMemory memory(nested(), 1000, {.work = 2});
  CHECK(!at(memory, "").place.is_known());
}

TEST(sequences_of_several_threads) {
  MaskMemory memory(nested(), 64 * sizeof(std::uint32_t), {.places = 40});
  std::atomic<int> n_wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, &n_wrong, t] {
      for (int round = 0; round < 200; ++round) {
        auto mark = memory.start();
        for (std::uint32_t depth = 0; depth < 30U + static_cast<std::uint32_t>(t); ++depth) {
          if (const auto found = memory.find(mark)) {
            if (*found != Words{depth}) ++n_wrong;
          } else {
            memory.keep(mark, Words{depth});
          }
          mark = memory.advance(mark, "(");
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(n_wrong.load(), 0);
}

}  // namespace
}  // namespace mask_memory_test
