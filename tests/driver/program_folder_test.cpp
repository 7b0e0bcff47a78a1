#include "driver/launch/program_folder.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace graphpipe;
using namespace graphpipe::driver;
namespace fs = std::filesystem;

TEST_CASE("what a verb makes lies beside the programs, and in a folder that goes where these may not be written") {
  std::string place = (fs::temp_directory_path() / "graphpipe-place-XXXXXX").string();
  REQUIRE(mkdtemp(place.data()) != nullptr);
  {
    const Result<ProgramFolder> kept = ProgramFolder::make_within(place, "verify");
    REQUIRE(kept.ok());
    CHECK(kept->path() == place + "/verify");
    std::ofstream(kept->path() + "/file") << "x";
  }
  CHECK(fs::exists(place + "/verify/file"));
  const bool root = geteuid() == 0;  // who may write everywhere
  std::string path;
  for (const char* read_only : {"", "/verify"}) {
    CAPTURE(read_only);
    fs::permissions(place + read_only, fs::perms(0555));
    if (root) REQUIRE(seteuid(65534) == 0);
    {
      const Result<ProgramFolder> ours = ProgramFolder::make_within(place, *read_only == 0 ? "other" : "verify");
      if (ours.ok()) path = ours->path();
      std::ofstream(path + "/file") << "x";
    }
    if (root) REQUIRE(seteuid(0) == 0);
    CHECK_FALSE(path.empty());
    CHECK_FALSE(path.starts_with(place));
    CHECK_FALSE(fs::exists(path));
  }
  fs::permissions(place, fs::perms::owner_all);
  fs::permissions(place + "/verify", fs::perms::owner_all);
  fs::remove_all(place);
}
