// Which builds of kernels were the fastest, kept from one start to the next. What is not there, or
// was measured elsewhere, is measured again: nothing hangs on the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace unpaced {

class ChoiceFile {
 public:
  // `place` names what a measurement holds for: card, driver, build of the engine and of ggml. With
  // an empty path nothing is read or kept. A file that cannot be read, or of another place, is
  // empty.
  ChoiceFile(std::string path, std::string place);

  [[nodiscard]] std::optional<std::int32_t> find(const std::string& shape) const;
  void put(const std::string& shape, std::int32_t choice);
  // Replaces the file as a whole, so that a reader or a process killed meanwhile leaves it whole;
  // its folders are made. False if that cannot be done: the next start measures again.
  bool save() const noexcept;

 private:
  void read();
  void write() const;

  std::string path_;
  std::string place_;
  std::map<std::string, std::int32_t> choices_;
};

}  // namespace unpaced
