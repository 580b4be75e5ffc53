// What a CUDA build says where it finds no card.
#include "engine/no_card.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "check.h"

namespace no_card_test {
namespace {

using unpaced::what_hides_cards;
using unpaced::why_no_card;

// A /dev of its own.
class Devices {
 public:
  Devices() {
    char name[] = "/tmp/no_card_test_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Devices() { std::filesystem::remove_all(folder_); }
  void add(const char* name) const { std::ofstream(folder_ / name).put('x'); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

TEST(no_driver_is_told_with_what_is_needed) {
  CHECK_EQ(why_no_card(0, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
           "this build is for CUDA, and there is no NVIDIA driver here (one that runs CUDA 13.0, "
           "release 580 or newer; --gpus all gives a container the host's): -ngl 0 serves on the "
           "CPU");
}

TEST(an_old_driver_is_told_with_both_versions) {
  CHECK_EQ(why_no_card(12040, 13000, "insufficient"),
           "the NVIDIA driver runs CUDA 12.4, and this build needs one that runs CUDA 13.0, "
           "release 580 or newer: update it, or -ngl 0 serves on the CPU");
}

TEST(any_driver_of_the_same_major_version_is_new_enough) {
  CHECK_EQ(why_no_card(13000, 13020, "no CUDA-capable device is detected"),
           "this build is for CUDA, and the NVIDIA driver shows no card (no CUDA-capable device is "
           "detected): -ngl 0 serves on the CPU");
}

TEST(what_hides_cards_is_named) {
  const Devices devices;
  const std::string folder = devices.folder().string();
  devices.add("nvidiactl");
  devices.add("nvidia-modeset");
  CHECK_EQ(what_hides_cards(devices.folder(), nullptr),
           "there is no " + folder + "/nvidia0, which --gpus all gives to a container");
  devices.add("nvidia3");
  CHECK_EQ(what_hides_cards(devices.folder(), nullptr), "");
  CHECK_EQ(what_hides_cards(devices.folder(), ""), "CUDA_VISIBLE_DEVICES is ''");
  CHECK_EQ(what_hides_cards(devices.folder(), "MIG-1"), "CUDA_VISIBLE_DEVICES is 'MIG-1'");
}

TEST(a_node_that_this_user_may_not_open_is_named) {
  const Devices devices;
  chmod(devices.folder().c_str(), 0755);
  devices.add("nvidia0");
  devices.add("nvidiactl");
  chmod((devices.folder() / "nvidiactl").c_str(), 0);
  const std::string expected =
      "this user may not open " + (devices.folder() / "nvidiactl").string();
  // Root may open anything.
  const pid_t child = fork();
  if (child == 0) {
    chmod((devices.folder() / "nvidia0").c_str(), 0666);
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    _exit(what_hides_cards(devices.folder(), "0") == expected ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace no_card_test
