// The installed calibration program on this machine, through the command line.

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

TEST_CASE("this machine is measured once: the second plan has the same numbers, and no plan file needs them again") {
  const fs::path folder = work_folder("calibration");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const Reference reference = read_reference("dlrm");
  const auto plan = [&](const std::string& file, const std::string& cache) {
    const auto finished = driver::run_and_collect(
        {.arguments = {"env", "-u", "GRAPHPIPE_CALIBRATION", "XDG_CACHE_HOME=" + (folder / cache).string(),
                       GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "plan", reference.folder + "/model.onnx", "--loss",
                       reference.loss, "--devices", "2", "--json", "--quiet", "-o", (folder / file).string()}});
    REQUIRE(finished.ok());
    CAPTURE(finished->output);
    REQUIRE(finished->ending.exit_code == 0);
    return nlohmann::json::parse(finished->output)["machine"];
  };
  const nlohmann::json first = plan("first.json", "cache");
  CHECK(first["source"] == "calibrated");
  // A core of any processor that runs LibTorch.
  CHECK(first["flops_per_second"].get<double>() > 1e8);
  CHECK(first["flops_per_second"].get<double>() < 1e14);
  CHECK(first["memory_bytes_per_second"].get<double>() > 1e7);
  CHECK(first["launch_overhead_seconds"].get<double>() > 0);
  CHECK(first["launch_overhead_seconds"].get<double>() < 0.1);
  CHECK(first["bytes_per_second"].get<double>() > 1e6);
  CHECK(plan("second.json", "cache") == first);
  CHECK(read_text(folder / "first.json") == read_text(folder / "second.json"));
  const std::string answer = graphpipe_output({"simulate", (folder / "first.json").string(), "--json"});
  CHECK_FALSE(nlohmann::json::parse(answer).contains("machine"));
}
