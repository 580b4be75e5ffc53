// The loop's test of itself at start-up, by what any caller of it has.
#pragma once

#include "device/llama/llama_bridge.h"
#include "device/loop/device_loop.h"
#include "model/model.h"

namespace unpaced {

// Compares the loop's steps with llama_decode's: the same logits, bit by bit, and the same tokens,
// across the ends of two windows, with the first of n_slots slots and the last one; and a token
// drawn from a whole row with the sampling core's. The KV is cleared, before and after. Throws
// std::runtime_error where anything differs.
void test_loop(const Model& model, LlamaBridge& bridge, DeviceLoop& loop, std::int32_t n_slots);

}  // namespace unpaced
