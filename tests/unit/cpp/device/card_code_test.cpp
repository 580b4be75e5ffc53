// What the drawing code needs of a card's shared memory, for the architectures it is compiled for.
#include "device/launch/card_code.h"

#include "check.h"

namespace card_code_test {
namespace {

using unpaced::draw_memory;
using unpaced::DrawMemory;
using unpaced::DrawRoom;
using unpaced::has_clusters;
using unpaced::is_compact;

constexpr std::size_t kKiB = 1024;

// About the real sizes, with the keys of a vocabulary.
constexpr DrawRoom room(std::size_t n_vocab) {
  return {.roomy = 75 * kKiB, .compact = 62 * kKiB, .keys = n_vocab / 4};
}

TEST(clusters_begin_with_9_0) {
  CHECK(!has_clusters(750) && !has_clusters(890));
  CHECK(has_clusters(900) && has_clusters(1030) && has_clusters(1210));
}

TEST(code_that_may_run_with_little_shared_memory_is_compact) {
  for (const int architecture : {750, 800, 890, 1000, 1210}) CHECK(is_compact(architecture));
  CHECK(!is_compact(900));
  CHECK(draw_memory(1000, room(152064), 99 * kKiB).fits);  // PTX of 10.0 on 12.1
}

TEST(keys_are_near_where_they_fit) {
  const DrawMemory hopper = draw_memory(900, room(152064), 227 * kKiB);
  CHECK(hopper.fits && !hopper.keys_are_far);
  CHECK(hopper.shared_bytes == 75 * kKiB + 152064 / 4);
  const DrawMemory ada = draw_memory(890, room(128256), 99 * kKiB);
  CHECK(ada.fits && !ada.keys_are_far);
}

TEST(compact_code_leaves_keys_where_they_are) {
  const DrawMemory turing = draw_memory(750, room(32000), 64 * kKiB);
  CHECK(turing.fits && turing.keys_are_far && turing.shared_bytes == 62 * kKiB);
  const DrawMemory ada = draw_memory(890, room(262144), 99 * kKiB);
  CHECK(ada.fits && ada.keys_are_far);
  CHECK(draw_memory(1200, room(262144), 99 * kKiB).fits);
}

TEST(roomy_code_on_a_card_with_little_does_not_fit) {
  // PTX of 9.0, compiled by the driver for 12.0.
  CHECK(!draw_memory(900, room(152064), 99 * kKiB).fits);
  CHECK(draw_memory(900, room(32000), 99 * kKiB).fits);
}

TEST(old_code_on_a_new_card_has_its_own_layout) {
  const DrawMemory memory = draw_memory(750, room(262144), 227 * kKiB);
  CHECK(memory.fits && !memory.keys_are_far);
  CHECK(memory.shared_bytes == 62 * kKiB + 262144 / 4);
}

}  // namespace
}  // namespace card_code_test
