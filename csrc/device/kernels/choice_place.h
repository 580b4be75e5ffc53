// What measurements of kernels hold for.
#pragma once

#include <string>

namespace unpaced {

// The file in `folder` that has this card's choices, by the card's name; empty without a folder.
[[nodiscard]] std::string choice_path(const std::string& folder, int device);
// ChoiceFile's place: card, driver, and the files of our code and ggml's. Throws
// std::runtime_error.
[[nodiscard]] std::string choice_place(int device);

}  // namespace unpaced
