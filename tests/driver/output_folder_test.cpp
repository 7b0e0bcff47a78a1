#include "driver/launch/output_folder.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace graphpipe;
namespace fs = std::filesystem;

namespace {

class OutputFolder {
 public:
  OutputFolder() : path_(fs::temp_directory_path() / ("graphpipe-output-" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~OutputFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  fs::path path_;
};

constexpr const char* kPlan =
    R"({"schema": "graphpipe.plan/1", "loss": {"kind": "output", "output": "y"}, "optimizer": "sgd", "batch": 2,
    "batch_norm": "train", "threads": 1, "planner": "manual", "policy": "kfkb",
    "stages": [{"nodes": [0], "devices": [0], "micro_batch": 1}]})";

std::vector<codegen::SourceFile> sources(const std::string& extra = "stages/a.cpp") {
  return {{"CMakeLists.txt", "# graphpipe 1\nproject(x)\n"}, {extra, "// graphpipe 1\nint a;\n"}};
}

Result<FolderNotes> write(const std::string& folder, const std::vector<codegen::SourceFile>& files) {
  return driver::write_folder(folder, files, ir::Graph(), {}, std::string(64, 'a'));
}

bool refuses(const Result<FolderNotes>& status, Code code) { return !status.ok() && status.problems()[0].code == code; }

}  // namespace

TEST_CASE("a folder is written, written again, and loses what is no longer part of it") {
  const OutputFolder folder;
  REQUIRE(write(folder / "out", sources()).ok());
  REQUIRE(write(folder / "out", sources("stages/b.cpp")).ok());
  CHECK(fs::exists(folder / "out/stages/b.cpp"));
  CHECK_FALSE(fs::exists(folder / "out/stages/a.cpp"));
  // What cannot be removed is named with its folder.
  fs::remove(folder / "out/stages/b.cpp");
  fs::create_directories(folder / "out/stages/b.cpp/taken");
  const Result<FolderNotes> refused = write(folder / "out", sources());
  REQUIRE(refuses(refused, Code::kEnvironment));
  CHECK(refused.problems()[0].origin.raw() == folder / "out/stages/b.cpp");
}

TEST_CASE("a folder of somebody else's is left alone, also where it holds a file that is called plan.json") {
  const OutputFolder folder;
  folder.write("notes.txt", "mine");
  CHECK(refuses(write(folder / "", sources()), Code::kUsage));
  folder.write("plan.json", "{\"a\": 1}");
  CHECK(refuses(write(folder / "", sources()), Code::kUsage));
}

TEST_CASE("beside a plan, weights that a compilation wrote are replaced and others are not") {
  const OutputFolder folder;
  folder.write("plan.json", kPlan);
  folder.write("weights.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  CHECK(refuses(write(folder / "", sources()), Code::kUsage));
  fs::remove(folder / "weights.safetensors");
  REQUIRE(write(folder / "", sources()).ok());
  // As after an interrupt: everything is there but the list of it.
  fs::remove(folder / "manifest.txt");
  CHECK(write(folder / "", sources()).ok());
}

TEST_CASE("beside a plan, files that begin as ours do are replaced and others are not") {
  const OutputFolder folder;
  folder.write("plan.json", kPlan);
  folder.write("CMakeLists.txt", "project(mine)\n");
  CHECK(refuses(write(folder / "", sources()), Code::kUsage));
  folder.write("CMakeLists.txt", "# graphpipe 1\nproject(interrupted)\n");
  CHECK(write(folder / "", sources()).ok());
}

TEST_CASE("nothing is written or removed through a symbolic link") {
  const OutputFolder folder;
  REQUIRE(write(folder / "out", sources()).ok());
  fs::create_directories(folder / "elsewhere");
  folder.write("elsewhere/a.cpp", "mine");
  fs::remove_all(folder / "out/stages");
  fs::create_directory_symlink(folder / "elsewhere", folder / "out/stages");
  CHECK(refuses(write(folder / "out", sources()), Code::kUnsafePath));
  CHECK(refuses(write(folder / "out", sources("programs/b.cpp")), Code::kUnsafePath));
  CHECK(fs::exists(folder / "elsewhere/a.cpp"));
}
