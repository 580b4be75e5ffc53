#include "bindings/token_frames.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/json_text.h"

namespace unpaced {
namespace {

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char character) { return static_cast<signed char>(character) >= 0; });
}

// Python waits for a surrogate's third byte, which is no UTF-8 with any: unpaced/completion/
// utf8_prefix.py does not, nor does this.
bool begins_surrogate(std::string_view rest) noexcept {
  return rest.size() == 2 && rest[0] == '\xed' && static_cast<unsigned char>(rest[1]) >= 0xa0;
}

SequenceState make_state(const nb::bytes& partial, std::int32_t n_decoded, std::int64_t last_us,
                         bool has_new_line) {
  return {std::string(view(partial)), n_decoded, last_us, has_new_line};
}

}  // namespace

TokenFrames::TokenFrames(nb::list pieces, const nb::list& parts, bool skips_empty, bool keeps_text,
                         SequenceState state, std::shared_ptr<Histogram> gaps)
    : pieces_(std::move(pieces)),
      skips_empty_(skips_empty),
      keeps_text_(keeps_text),
      gaps_(std::move(gaps)),
      state_(std::move(state)),
      written_us_(state_.last_us) {
  for (const nb::handle part : parts) {
    if (nb::isinstance<nb::bytes>(part)) {
      end_ += view(nb::cast<nb::bytes>(part));
      continue;
    }
    const int field = nb::cast<int>(part);
    if (field < 0 || field > static_cast<int>(FrameField::kNumber)) {
      throw nb::value_error("parts: no such field");
    }
    parts_.push_back({std::exchange(end_, {}), static_cast<FrameField>(field)});
  }
}

void TokenFrames::add(TokenId token, std::int32_t n_decoded, std::int64_t t_us) {
  if (token < 0 || static_cast<std::size_t>(token) >= pieces_.size()) {
    throw nb::index_error("no such token");
  }
  gaps_->observe(static_cast<double>(t_us - state_.last_us) * 1e-6);
  state_.last_us = t_us;
  state_.n_decoded = n_decoded;
  const std::string_view text = push(view(nb::borrow<nb::bytes>(pieces_[token])));
  state_.has_new_line = state_.has_new_line || text.find('\n') != std::string_view::npos;
  if (keeps_text_) text_ += text;
  if (skips_empty_ && text.empty()) return;
  written_us_ = t_us;
  for (const Part& part : parts_) {
    frames_ += part.literal;
    switch (part.field) {
      case FrameField::kText:
        append_json(frames_, text);
        break;
      case FrameField::kToken:
        frames_ += std::to_string(token);
        break;
      case FrameField::kNumber:
        frames_ += std::to_string(n_decoded);
        break;
    }
  }
  frames_ += end_;
}

std::string_view TokenFrames::push(std::string_view piece) {
  if (state_.partial.empty() && is_ascii(piece)) return piece;
  // Python's own decoder, so that broken UTF-8 is read as everywhere else.
  state_.partial += piece;
  const auto n_bytes = static_cast<Py_ssize_t>(state_.partial.size());
  Py_ssize_t n_used = 0;
  decoded_ =
      nb::steal(PyUnicode_DecodeUTF8Stateful(state_.partial.data(), n_bytes, "replace", &n_used));
  if (decoded_ &&
      begins_surrogate(std::string_view(state_.partial).substr(static_cast<std::size_t>(n_used)))) {
    decoded_ = nb::steal(PyUnicode_DecodeUTF8(state_.partial.data(), n_bytes, "replace"));
    n_used = n_bytes;
  }
  Py_ssize_t size = 0;
  const char* text = decoded_ ? PyUnicode_AsUTF8AndSize(decoded_.ptr(), &size) : nullptr;
  if (text == nullptr) nb::raise_python_error();
  state_.partial.erase(0, static_cast<std::size_t>(n_used));
  return {text, static_cast<std::size_t>(size)};
}

nb::bytes TokenFrames::take() {
  nb::bytes taken(frames_.data(), frames_.size());
  frames_.clear();
  return taken;
}

nb::bytes TokenFrames::take_chunk() {
  if (frames_.empty()) return take();
  std::array<char, 2 * sizeof(std::size_t) + 2> head{};
  char* end = std::to_chars(head.begin(), head.end(), frames_.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  frames_.insert(0, head.data(), static_cast<std::size_t>(end - head.data()));
  frames_ += "\r\n";
  return take();
}

nb::bytes TokenFrames::take_text() {
  nb::bytes taken(text_.data(), text_.size());
  text_.clear();
  return taken;
}

void bind_token_frames(nb::module_& m) {
  nb::class_<Histogram>(m, "Histogram")
      .def(nb::init<std::vector<double>>(), "bounds"_a)
      .def("observe", &Histogram::observe, "value"_a)
      .def_prop_ro("bounds", &Histogram::bounds)
      .def_prop_ro("counts", &Histogram::counts)
      .def_prop_ro("total", &Histogram::total);
  nb::class_<TokenFrames>(m, "TokenFrames")
      .def(
          "__init__",
          [](TokenFrames* self, nb::list pieces, const nb::list& parts, bool skips_empty,
             bool keeps_text, const nb::bytes& partial, std::int32_t n_decoded,
             std::int64_t last_us, bool has_new_line, std::shared_ptr<Histogram> gaps) {
            new (self)
                TokenFrames(std::move(pieces), parts, skips_empty, keeps_text,
                            make_state(partial, n_decoded, last_us, has_new_line), std::move(gaps));
          },
          "pieces"_a, "parts"_a, nb::kw_only(), "skips_empty"_a, "keeps_text"_a, "partial"_a,
          "n_decoded"_a, "last_us"_a, "has_new_line"_a, "gaps"_a,
          nb::sig("def __init__(self, pieces: list[bytes], parts: list[bytes | int], *, "
                  "skips_empty: bool, keeps_text: bool, partial: bytes, n_decoded: int, "
                  "last_us: int, has_new_line: bool, gaps: Histogram) -> None"))
      .def("add", &TokenFrames::add, "token"_a, "n_decoded"_a, "t_us"_a)
      .def("take", &TokenFrames::take)
      .def("take_chunk", &TokenFrames::take_chunk)
      .def("take_text", &TokenFrames::take_text)
      .def_prop_ro(
          "partial", [](const TokenFrames& f) { return to_bytes(f.state().partial); },
          nb::sig("def partial(self) -> bytes"))
      .def_prop_ro("n_decoded", [](const TokenFrames& f) { return f.state().n_decoded; })
      .def_prop_ro("last_us", [](const TokenFrames& f) { return f.state().last_us; })
      .def_prop_ro("written_us", &TokenFrames::written_us)
      .def_prop_ro("has_new_line", [](const TokenFrames& f) { return f.state().has_new_line; });
}

}  // namespace unpaced
