// An installed graphpipe works from any place, and so does a program that was copied out of its build folder.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

namespace {

struct Ended {
  int exit_code = -1;
  std::string output;
};

// Without the variables that would tell where the runtime is.
Ended run_bare(std::vector<std::string> words) {
  words.insert(words.begin(), {"env", "-u", "GRAPHPIPE_RUNTIME_DIR", "-u", "GRAPHPIPE_LIBTORCH"});
  const auto finished = driver::run_and_collect({.arguments = words});
  REQUIRE(finished.ok());
  return {finished->ending.exit_code, finished->output};
}

std::string plan_of_dlrm(const std::string& folder) {
  const std::string plan = folder + "/plan.json";
  make_plan(read_reference("dlrm"), plan, {"--devices", "2", "--stages", "2", "--micro-batch", "2"});
  return plan;
}

}  // namespace

TEST_CASE("an installed graphpipe that was moved generates, builds and runs") {
  const fs::path folder = work_folder("install");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string first = folder / "first", moved = folder / "moved", out = folder / "out";
  for (const char* component : {"compiler", "runtime"}) {
    const Ended installed =
        run_bare({"cmake", "--install", GRAPHPIPE_BINARY_DIR, "--prefix", first, "--component", component});
    CAPTURE(installed.output);
    REQUIRE(installed.exit_code == 0);
  }
  fs::rename(first, moved);
  const std::string graphpipe = moved + "/bin/graphpipe";
  for (const std::vector<std::string>& words : {
           std::vector<std::string>{graphpipe, "generate", plan_of_dlrm(folder), "-o", out},
           std::vector<std::string>{graphpipe, "build", out},
           std::vector<std::string>{graphpipe, "run", out, "--steps", "1"},
       }) {
    const Ended ended = run_bare(words);
    CAPTURE(ended.output);
    REQUIRE(ended.exit_code == 0);
  }
  CHECK(read_text(out + "/build/CMakeCache.txt").find(moved) != std::string::npos);

  // Alone, it falls back on the build that made it.
  const std::string alone = folder / "graphpipe";
  fs::copy_file(graphpipe, alone);
  fs::remove_all(out + "/build");
  const Ended built = run_bare({alone, "build", out});
  CAPTURE(built.output);
  CHECK(built.exit_code == 0);
}

TEST_CASE("a runtime that is not there, or is another version, is an error that says where to look") {
  const fs::path folder = work_folder("install_refused");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string out = folder / "out";
  graphpipe_output({"generate", plan_of_dlrm(folder), "-o", out, "--quiet"});
  const auto build_with = [&](const std::string& prefix) {
    const auto finished = driver::run_and_collect(
        {.arguments = {"env", "GRAPHPIPE_RUNTIME_DIR=" + prefix, GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "build", out}});
    REQUIRE(finished.ok());
    CHECK(finished->ending.exit_code == 5);
    return finished->output;
  };
  CHECK(build_with(folder / "nothing").find("set GRAPHPIPE_RUNTIME_DIR") != std::string::npos);

  const fs::path older = folder / "older/share/graphpipe";
  fs::create_directories(older);
  fs::copy(GRAPHPIPE_BINARY_DIR "/prefix/share/graphpipe/GraphPipeConfig.cmake", older);
  std::ofstream(older / "GraphPipeConfigVersion.cmake")
      << "set(PACKAGE_VERSION 0.0.1)\nset(PACKAGE_VERSION_COMPATIBLE FALSE)\n";
  CHECK(build_with(folder / "older").find("0.0.1") != std::string::npos);
}
