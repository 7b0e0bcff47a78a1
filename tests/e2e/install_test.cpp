// An installed graphpipe works from any place, and so does a program that was copied out of its build folder.

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "driver/launch/process.h"
#include "support/text.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/support/onnx_text.h"
#include "tests/support/test_data.h"
#include "wire/version.h"

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

TEST_CASE("a project of a user's own, outside of the tree, takes an installed runtime that was moved by find_package") {
  const graphpipe::testing::TemporaryFolder folder;
  const std::string first = folder / "first", prefix = folder / "moved";
  REQUIRE(
      run_bare({"cmake", "--install", GRAPHPIPE_BINARY_DIR, "--prefix", first, "--component", "runtime"}).exit_code ==
      0);
  fs::rename(first, prefix);
  folder.write("CMakeLists.txt", text("cmake_minimum_required(VERSION 3.25)\nproject(consumer CXX)\n"
                                      "find_package(GraphPipe ",
                                      wire::kToolVersion,
                                      " CONFIG REQUIRED)\n"
                                      "add_executable(consumer consumer.cpp)\n"
                                      "target_link_libraries(consumer PRIVATE graphpipe::runtime)\n"));
  // Reads weights as the programs do.
  folder.write("consumer.cpp", R"cpp(#include <iostream>

#include "runtime/io/safetensors.h"
#include "wire/version.h"

                                     int main(int, char** arguments) {
                                       const graphpipe::runtime::Safetensors weights{std::string(arguments[1])};
                                       std::cout << graphpipe::wire::kToolVersion;
                                       for (const auto& [name, place] : weights.tensors()) std::cout << " " << name << "=" << weights.view(place).numel();
                                     }
  )cpp");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"cmake", "-S", folder / "", "-B", folder / "build", "-DCMAKE_PREFIX_PATH=" + prefix},
        std::vector<std::string>{"cmake", "--build", folder / "build"}}) {
    const Ended ended = run_bare(words);
    CAPTURE(ended.output);
    REQUIRE(ended.exit_code == 0);
  }
  const std::string file = data_path("models/dlrm/reference.safetensors"),
                    content = read_data("models/dlrm/reference.safetensors");
  std::string expected = wire::kToolVersion;
  uint64_t header = 0;
  std::memcpy(&header, content.data(), sizeof header);
  const auto entries = nlohmann::json::parse(content.substr(sizeof header, header));
  for (const auto& [name, entry] : entries.items()) {
    int64_t numbers = 1;
    for (const int64_t dim : entry.value("shape", std::vector<int64_t>())) numbers *= dim;
    if (name != "__metadata__") expected += " " + name + "=" + std::to_string(numbers);
  }
  CHECK(run_bare({folder / "build/consumer", file}).output == expected + "\n");
}
