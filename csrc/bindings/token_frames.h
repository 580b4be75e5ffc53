// TokenFrames as Python makes them: of its own list of pieces.
#pragma once

#include <utility>

#include "bindings/python.h"
#include "streams/token_frames.h"

namespace unpaced {

class PyTokenFrames : public TokenFrames {
 public:
  // `pieces`: every token's bytes by id, and never changed: they are read without the GIL.
  PyTokenFrames(nb::list pieces, FrameTemplate form, SequenceState state,
                std::shared_ptr<Histogram> gaps)
      : TokenFrames({.piece_of = &piece_of, .table = pieces.ptr(), .n = pieces.size()},
                    std::move(form), std::move(state), std::move(gaps)),
        pieces_(std::move(pieces)) {}

 private:
  static std::string_view piece_of(const void* list, TokenId token) noexcept;

  const nb::list pieces_;  // keeps them
};

}  // namespace unpaced
