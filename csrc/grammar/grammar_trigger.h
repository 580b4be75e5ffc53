// What switches a lazy grammar on.
#pragma once

#include <string>

#include "base/token.h"

namespace unpaced {

struct GrammarTrigger {
  TokenId token = -1;  // this token; or, if -1,
  std::string word;    // these bytes in the text
  // Whether the grammar begins with the trigger, as llama-server's do, or after it.
  bool inside = true;
};

// Reasoning: no trigger counts between `start` and `end`, texts in which control tokens are spelled
// out. Empty: there are none.
struct QuietSpan {
  std::string start;
  std::string end;
  bool is_open = false;  // the text begins within one
};

}  // namespace unpaced
