#include "device/kernels/choice_file.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace unpaced {
namespace {

// A line each: the kind of file, the place, then choice and shape.
constexpr const char* kHeader = "unpaced kernel choices 1";

// What would end a line, or begin a column, is no part of a name.
std::string as_name(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

ChoiceFile::ChoiceFile(std::string path, std::string place)
    : path_(std::move(path)), place_(as_name(std::move(place))) {
  if (!path_.empty()) read();
}

std::optional<std::int32_t> ChoiceFile::find(const std::string& shape) const {
  const auto found = choices_.find(as_name(shape));
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void ChoiceFile::put(const std::string& shape, std::int32_t choice) {
  choices_[as_name(shape)] = choice;
}

void ChoiceFile::read() {
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != kHeader) return;
  if (!std::getline(file, line) || line != place_) return;
  while (std::getline(file, line)) {
    std::int32_t choice = 0;
    const char* end = line.data() + line.size();
    const auto [behind, error] = std::from_chars(line.data(), end, choice);
    if (error != std::errc() || behind == end || *behind != '\t') continue;
    choices_[std::string(behind + 1, end)] = choice;
  }
}

bool ChoiceFile::save() const noexcept {
  if (path_.empty()) return false;
  try {
    write();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void ChoiceFile::write() const {
  const std::filesystem::path path(path_);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  // Of this process alone: another one may be at it.
  const std::filesystem::path fresh = path_ + "." + std::to_string(getpid());
  try {
    {
      std::ofstream file(fresh, std::ios::trunc);
      file << kHeader << '\n' << place_ << '\n';
      for (const auto& [shape, choice] : choices_) file << choice << '\t' << shape << '\n';
      file.flush();
      if (!file) throw std::runtime_error("not written");
    }
    std::filesystem::rename(fresh, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);
    throw;
  }
}

}  // namespace unpaced
