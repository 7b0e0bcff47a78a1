// `generate --bundle`: the folder builds with CMake, a compiler and LibTorch alone, and trains like any other.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

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

}  // namespace

TEST_CASE("a bundled folder needs nothing of ours to build, and trains") {
  const Reference reference = read_reference("dlrm");
  const std::string folder = work_folder("dlrm_bundle");
  const std::string plan = folder + ".plan.json";
  fs::remove_all(folder);
  make_plan(reference, plan, {"--devices", "2", "--stages", "2", "--micro-batch", "2"});
  must_run({GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "generate", plan, "--bundle", "-o", folder, "--quiet"});
  // What a user of another machine types, where all cases run; GRAPHPIPE_LIBTORCH is in the environment. Without
  // optimisation the runtime compiles in half the time.
  REQUIRE(std::getenv("GRAPHPIPE_LIBTORCH") != nullptr);
  must_run({"env", "-u", "GRAPHPIPE_RUNTIME_DIR", "cmake", "-S", folder, "-B", folder + "/build",
            all_cases() ? "-DCMAKE_BUILD_TYPE=" : "-DCMAKE_BUILD_TYPE=None"});
  must_run({"env", "-u", "GRAPHPIPE_RUNTIME_DIR", "cmake", "--build", folder + "/build", "--parallel", "2"});
  const std::string cache = text_of(folder + "/build/CMakeCache.txt");
  CHECK(cache.find("GRAPHPIPE_RUNTIME_DIR") == std::string::npos);
  const bool cuda = cache.find("GRAPHPIPE_CUDA:BOOL=ON") != std::string::npos;
  std::cout << "bundle: " << (cuda ? "with" : "without") << " CUDA\n";

  const Trained pipeline = train(reference, folder, false);
  const Trained serial = train(reference, folder, true);
  CHECK(pipeline.losses == serial.losses);
  CHECK(same_bytes(pipeline.weights, serial.weights));
  CHECK(largest_relative(pipeline.losses, reference.losses) <= 1e-5);
  CHECK(largest_tensor_difference(pipeline.gradients, reference, "gradient") <= 1e-4);
}
