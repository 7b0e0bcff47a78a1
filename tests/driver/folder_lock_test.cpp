#include "driver/launch/folder_lock.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::driver;
using namespace graphpipe::tests;

TEST_CASE("one process at a time generates or builds a folder") {
  std::string place = (std::filesystem::temp_directory_path() / "graphpipe-lock-XXXXXX").string();
  REQUIRE(mkdtemp(place.data()) != nullptr);
  const std::string folder = place + "/inner/folder";
  {
    const Result<FolderLock> held = FolderLock::take(folder);
    REQUIRE(held.ok());
    const Result<FolderLock> second = FolderLock::take(folder);
    REQUIRE_FALSE(second.ok());
    CHECK(second.problems()[0].code == Code::kEnvironment);
    CHECK(second.problems()[0].message.find("another graphpipe") != std::string::npos);
    const Answer build = ask({"build", folder});
    CHECK(build.code == 5);
    CHECK(build.err.find("another graphpipe") != std::string::npos);
    const Answer profile = ask({"profile", GRAPHPIPE_SOURCE_DIR "/tests/data/models/dlrm/model.onnx", "--loss",
                                "bce:logit,label", "--keep", folder, "-o", place + "/profile.json"});
    CHECK(profile.code == 5);
    CHECK(profile.err.find("another graphpipe") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(folder));  // made for the lock, and nothing came of it
  {
    const Result<FolderLock> again = FolderLock::take(folder);
    REQUIRE(again.ok());
    std::ofstream(folder + "/plan.json") << "x";
  }
  CHECK(std::filesystem::exists(folder + "/plan.json"));
  CHECK(FolderLock::take(folder).ok());
  CHECK_FALSE(FolderLock::take(folder + "/plan.json").ok());
  std::filesystem::remove_all(place);
}
