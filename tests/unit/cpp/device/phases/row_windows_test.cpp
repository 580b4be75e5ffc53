// Into how many parts a row's cells are divided, by window.
#include "device/phases/row_windows.h"

#include "check.h"

namespace row_windows_test {
namespace {

using unpaced::RowWindows;

TEST(the_most_parts_of_all_windows_up_to_one) {
  RowWindows windows(256);
  CHECK_EQ(windows.n_cells(), 0);
  CHECK_EQ(windows.most(256), 0);
  for (const int n_parts : {2, 4, 3, 8}) windows.add(n_parts);
  CHECK_EQ(windows.n_cells(), 1024);
  CHECK_EQ(windows.most(1), 2);
  CHECK_EQ(windows.most(256), 2);
  CHECK_EQ(windows.most(512), 4);
  CHECK_EQ(windows.most(768), 4);  // a smaller window has more
  CHECK_EQ(windows.most(1024), 8);
}

TEST(a_window_that_is_not_known_has_none) {
  RowWindows windows(256);
  windows.add(2);
  CHECK_EQ(windows.most(257), 0);
  CHECK_EQ(windows.most(0), 0);
}

}  // namespace
}  // namespace row_windows_test
