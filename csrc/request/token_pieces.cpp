#include "request/token_pieces.h"

#include "vocabulary/vocabulary.h"

namespace unpaced {

TokenPieces::TokenPieces(const Vocabulary& vocabulary, bool special) {
  begin_.reserve(static_cast<std::size_t>(vocabulary.n_tokens()) + 1);
  for (TokenId token = 0; token < vocabulary.n_tokens(); ++token) {
    add(vocabulary.piece(token, special));
  }
  text_.shrink_to_fit();
}

}  // namespace unpaced
