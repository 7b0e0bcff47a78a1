#include "files/text_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "files/plan.h"
#include "support/output_file.h"
#include "tests/files/random_plan.h"

namespace graphpipe::files {
namespace {

namespace fs = std::filesystem;

// A folder of its own that goes away with the test.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "graphpipe-files-XXXXXX").string()) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  size_t count() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }

 private:
  std::string path_;
};

TEST_CASE("a file that is written reads back, and replaces the one before") {
  const Folder folder;
  const std::string path = folder.file("a");
  REQUIRE(write_file(path, "first").ok());
  REQUIRE(write_file(path, "second").ok());
  CHECK(read_file(path, 100).value() == "second");
  CHECK(folder.count() == 1);
}

TEST_CASE("a file that is not committed leaves nothing behind and the old one untouched") {
  const Folder folder;
  const std::string path = folder.file("a");
  REQUIRE(write_file(path, "old").ok());
  {
    Result<OutputFile> file = OutputFile::create(path);
    REQUIRE(file.ok());
    REQUIRE(file->write("half").ok());
    CHECK(folder.count() == 2);
  }
  CHECK(read_file(path, 100).value() == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("what is no readable file of a fitting size is refused") {
  const Folder folder;
  CHECK(read_file(folder.file("none"), 100).problems()[0].code == Code::kUnreadableFile);
  CHECK(read_file(folder.file(""), 100).problems()[0].code == Code::kUnreadableFile);
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(read_file(folder.file("pipe"), 100).problems()[0].code == Code::kUnreadableFile);
  REQUIRE(write_file(folder.file("long"), std::string(101, 'x')).ok());
  CHECK(read_file(folder.file("long"), 100).problems()[0].code == Code::kLimitExceeded);
  CHECK(write_file(folder.file("no/such/folder"), "x").problems()[0].code == Code::kEnvironment);
}

TEST_CASE("a plan goes through a file, and a bad one is named") {
  const Folder folder;
  const ir::Plan plan = tests::random_plan(1);
  REQUIRE(write_plan(folder.file("plan.json"), plan).ok());
  CHECK(read_plan(folder.file("plan.json")).value() == plan);
  REQUIRE(write_file(folder.file("bad.json"), "{").ok());
  CHECK(read_plan(folder.file("bad.json")).problems()[0].origin.raw() == folder.file("bad.json"));
}

}  // namespace
}  // namespace graphpipe::files
