// Choices of kernels from one start to the next: kept for one place alone, whole or not at all.
#include "device/kernels/choice_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "check.h"

namespace choice_file_test {
namespace {

using unpaced::ChoiceFile;

// A folder of the test's own.
class Folder {
 public:
  Folder() { std::filesystem::remove_all(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file() const { return (path_ / "new" / "choices").string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("choice-file-" + std::to_string(getpid()));
};

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(choices_survive_a_restart) {
  const Folder folder;
  ChoiceFile first(folder.file(), "H200 580.1 b1");
  CHECK(!first.find("Q4_K 4096").has_value());
  first.put("Q4_K 4096", 3);
  first.put("a\ttab and a\nline", -1);
  CHECK(first.save());
  const ChoiceFile next(folder.file(), "H200 580.1 b1");
  CHECK(next.find("Q4_K 4096") == std::optional<std::int32_t>(3));
  CHECK(next.find("a\ttab and a\nline") == std::optional<std::int32_t>(-1));
  CHECK(!next.find("Q4_K 4097").has_value());
}

TEST(another_card_driver_or_build_measures_again) {
  const Folder folder;
  ChoiceFile first(folder.file(), "H200 580.1 b1");
  first.put("x", 1);
  CHECK(first.save());
  ChoiceFile other(folder.file(), "H200 581.0 b1");
  CHECK(!other.find("x").has_value());
  // Its file takes the other one's place.
  other.put("y", 2);
  CHECK(other.save());
  CHECK(!ChoiceFile(folder.file(), "H200 580.1 b1").find("x").has_value());
  CHECK(ChoiceFile(folder.file(), "H200 581.0 b1").find("y") == std::optional<std::int32_t>(2));
}

TEST(a_broken_file_is_an_empty_one) {
  const Folder folder;
  const std::string place = "H200 580.1 b1";
  const std::string header = "unpaced kernel choices 1\n" + place + "\n";
  write(folder.file(), "something else\n1\tx\n");
  CHECK(!ChoiceFile(folder.file(), place).find("x").has_value());
  // What can be read of it counts.
  write(folder.file(), header + "1\tx\nnonsense\n99999999999\tz\n2 y\n7\tw");
  const ChoiceFile partly(folder.file(), place);
  CHECK(partly.find("x") == std::optional<std::int32_t>(1));
  CHECK(!partly.find("y").has_value());
  CHECK(!partly.find("z").has_value());
  CHECK(partly.find("w") == std::optional<std::int32_t>(7));
}

// Each process writes its own number for every shape: a mixture would be a broken file.
TEST(of_processes_at_once_one_file_stays_whole) {
  const Folder folder;
  constexpr int kShapes = 200;
  std::vector<pid_t> processes;
  for (int number = 1; number <= 4; ++number) {
    const pid_t process = fork();
    REQUIRE(process >= 0);
    if (process > 0) {
      processes.push_back(process);
      continue;
    }
    bool whole = true;
    for (int round = 0; round < 25; ++round) {
      ChoiceFile mine(folder.file(), "place");
      const std::optional<std::int32_t> first = mine.find("shape 0");
      for (int i = 0; i < kShapes; ++i)
        whole = whole && mine.find("shape " + std::to_string(i)) == first;
      for (int i = 0; i < kShapes; ++i) mine.put("shape " + std::to_string(i), number);
      whole = whole && mine.save();
    }
    _exit(whole ? 0 : 1);
  }
  for (const pid_t process : processes) {
    int status = -1;
    waitpid(process, &status, 0);
    CHECK_EQ(status, 0);
  }
  CHECK(ChoiceFile(folder.file(), "place").find("shape 0").has_value());
}

TEST(no_path_and_no_folder_are_no_faults) {
  ChoiceFile nowhere("", "place");
  nowhere.put("x", 1);
  CHECK(nowhere.find("x") == std::optional<std::int32_t>(1));
  CHECK(!nowhere.save());
  ChoiceFile forbidden("/proc/none/choices", "place");
  forbidden.put("x", 1);
  CHECK(!forbidden.save());
}

}  // namespace
}  // namespace choice_file_test
