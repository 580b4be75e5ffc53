// Text out of bytes that come in pieces.
#pragma once

#include <string>
#include <string_view>

namespace unpaced {

// Takes the characters off the beginning of `bytes` and appends them to `text`; what the next bytes
// may make a character of stays. What is no UTF-8 becomes U+FFFD, one for each maximal subpart
// (Unicode 15, 3.9, "U+FFFD Substitution of Maximal Subparts"), as in Python's decoder.
void take_characters(std::string& bytes, std::string& text);

}  // namespace unpaced
