// What a card has and what was chosen for it, for whoever asks the server.
#pragma once

#include "device/launch/draw_launch.h"
#include "model/decode_loop.h"

namespace unpaced {

// Of CUDA's device of this number, the calling thread's.
[[nodiscard]] CardReport report_card(int device, const DrawLaunch& draw);

}  // namespace unpaced
