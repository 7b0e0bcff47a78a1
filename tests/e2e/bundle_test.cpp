// `generate --bundle`: the folder builds with CMake, a compiler and LibTorch alone, and trains like any other.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/support/case_count.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

namespace {

std::string must_run(const std::vector<std::string>& arguments) {
  const auto finished = driver::run_and_collect({.arguments = arguments});
  REQUIRE(finished.ok());
  CAPTURE(joined(arguments));
  CAPTURE(finished->output);
  REQUIRE(finished->ending.ok());
  return finished->output;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Reference& example() {
  static const Reference reference = read_reference("dlrm");
  return reference;
}

// A bundled folder of two stages, and what a user of another machine types to configure it; GRAPHPIPE_LIBTORCH is in
// the environment.
std::string configured_bundle(const std::vector<std::string>& flags) {
  const std::string folder = work_folder("dlrm_bundle");
  const std::string plan = folder + ".plan.json";
  fs::remove_all(folder);
  make_plan(example(), plan, {"--devices", "2", "--stages", "2", "--micro-batch", "2"});
  must_run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "generate", plan, "--bundle", "-o", folder, "--quiet"});
  REQUIRE(std::getenv("GRAPHPIPE_LIBTORCH") != nullptr);
  std::vector<std::string> words = {"env",  "-u", "GRAPHPIPE_RUNTIME_DIR", "cmake", "-S",
                                    folder, "-B", folder + "/build"};
  words.insert(words.end(), flags.begin(), flags.end());
  must_run(words);
  CHECK(text_of(folder + "/build/CMakeCache.txt").find("GRAPHPIPE_RUNTIME_DIR") == std::string::npos);
  return folder;
}

// The files of each unit of a library, by their paths below `root`.
std::vector<std::string> units_of(const std::string& library_folder, const std::string& root) {
  std::vector<std::string> units;
  const std::string start = "#include \"" + root + "/";
  for (size_t i = 0;; ++i) {
    std::ifstream file(library_folder + "/Unity/unity_" + std::to_string(i) + "_cxx.cxx");
    if (!file) return units;
    units.emplace_back();
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(start)) units.back() += line.substr(start.size()) + "\n";
  }
}

// The unit's command with other flags in place of its output.
void check_unit(const nlohmann::json& unit, const std::string& flags) {
  std::string command = unit["command"];
  const size_t output = command.find(" -o ");
  REQUIRE(output != std::string::npos);
  command.replace(output, command.find(" -c ", output) - output, flags);
  CAPTURE(command);
  const auto finished = driver::run_and_collect(
      {.arguments = {"sh", "-c", "cd '" + unit["directory"].get<std::string>() + "' && exec " + command}});
  REQUIRE(finished.ok());
  CAPTURE(finished->output);
  CHECK(finished->ending.ok());
}

}  // namespace

// The build has compiled the runtime's units, but not the files that are alone where the machine has CUDA.
TEST_CASE("a bundled folder has every file that its units include, and they are those of the build") {
  const std::string folder = configured_bundle({"-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"});
  size_t built_units = 0;
  for (const std::string name : {"support", "wire", "runtime"}) {
    const std::string library = "/CMakeFiles/graphpipe_" + name + ".dir";
    const auto built = units_of(GRAPHPIPE_BINARY_DIR "/" + name + library, GRAPHPIPE_SOURCE_DIR);
    const auto bundled = units_of(folder + "/build" + library, folder + "/runtime");
    CHECK(!bundled.empty());
    // A preset for development has none.
    if (!built.empty()) CHECK(bundled == built);
    built_units += built.size();
  }
  const nlohmann::json units = nlohmann::json::parse(text_of(folder + "/build/compile_commands.json"));
  REQUIRE(units.size() > 6);
  for (const nlohmann::json& unit : units) {
    const bool is_alone = unit["file"].get<std::string>().starts_with(folder + "/runtime/");
    check_unit(unit, is_alone || built_units == 0 ? " -fsyntax-only" : " -E -o /dev/null");
  }
}

// It takes the runtime's compilation once more.
TEST_CASE("a bundled folder needs nothing of ours to build, and trains" * doctest::skip(!all_cases())) {
  const std::string folder = configured_bundle({});
  must_run({"env", "-u", "GRAPHPIPE_RUNTIME_DIR", "cmake", "--build", folder + "/build", "--parallel", "2"});
  const bool cuda = text_of(folder + "/build/CMakeCache.txt").find("GRAPHPIPE_CUDA:BOOL=ON") != std::string::npos;
  std::cout << "bundle: " << (cuda ? "with" : "without") << " CUDA\n";

  const Trained pipeline = train(example(), folder, false);
  const Trained serial = train(example(), folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
  CHECK(largest_relative(pipeline.losses, example().losses) <= 1e-5);
  CHECK(largest_tensor_difference(pipeline.gradients, example(), "gradient") <= 1e-4);
}
