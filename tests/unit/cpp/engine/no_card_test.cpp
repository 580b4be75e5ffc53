// What a CUDA build says where it finds no card.
#include "engine/no_card.h"

#include "check.h"

namespace {

using unpaced::why_no_card;

TEST(no_driver_is_told_with_what_is_needed) {
  CHECK_EQ(why_no_card(0, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
           "this build is for CUDA, and there is no NVIDIA driver here (one that runs CUDA 13.0, "
           "release 580 or newer): -ngl 0 serves on the CPU");
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

}  // namespace

CHECK_MAIN()
