// The installed calibration program on this machine, through the command line.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "driver/launch/launch.h"
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

TEST_CASE("a profile has each operator at each number of samples, and plans are priced by its curve") {
  const fs::path folder = work_folder("profile");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const Reference reference = read_reference("dlrm");
  const std::string file = folder / "profile.json", model = reference.folder + "/model.onnx";
  graphpipe_output({"profile", model, "--loss", reference.loss, "--batch", "8", "--steps", "3", "-o", file, "-q"});
  const std::string plan = folder / "plan.json";
  graphpipe_output({"plan", model, "--loss", reference.loss, "--profile", file, "-o", plan, "-q"});
  graphpipe_output({"simulate", plan, "--format", "svg", "-o", file}, 2);
  graphpipe_output({"report", plan, "-o", file}, 2);
  graphpipe_output({"plan", model, "--loss", reference.loss, "--plan", plan, "-o", file}, 2);
  graphpipe_output({"run", "--pace", plan, "--steps", "1", "--trace", file}, 2);
  nlohmann::ordered_json profile = nlohmann::ordered_json::parse(read_text(file));  // the schema comes first
  std::map<std::string, std::set<int>> sizes;
  CHECK(profile["runtime"]["add_seconds_per_byte"].get<double>() > 0);
  for (const nlohmann::ordered_json& row : profile["operators"]) {
    sizes[row["signature"]].insert(row["samples"].get<int>());
    CHECK(row["forward_seconds"].get<double>() >= 0);
  }
  CHECK(sizes.size() > 5);
  for (const auto& [signature, measured] : sizes) CHECK(measured == std::set{1, 2, 4, 8});

  // Times that are no line: each operator takes a millisecond up to four samples, and one for each above.
  for (nlohmann::ordered_json& row : profile["operators"]) {
    const bool all = row["samples"] == 8;
    for (const char* pass : {"forward_seconds", "input_gradient_seconds", "weight_gradient_seconds"})
      if (row.value(pass, 0.0) > 0) row[pass] = all ? 8e-3 : 1e-3;
  }
  std::ofstream(file) << profile;
  const auto work = [&](int micro_batch) {
    const std::string plan =
        graphpipe_output({"plan", model, "--loss", reference.loss, "--profile", file, "--batch", "8", "--micro-batch",
                          std::to_string(micro_batch), "--devices", "1", "--json", "-q"});
    return nlohmann::json::parse(plan)["simulated_step"].get<double>();
  };
  // Eight, four and two items of one millisecond an operator, and one item of eight.
  CHECK(work(2) == doctest::Approx(work(1) / 2).epsilon(0.05));
  CHECK(work(4) == doctest::Approx(work(2) / 2).epsilon(0.05));
  CHECK(work(8) == doctest::Approx(4 * work(4)).epsilon(0.05));
}

TEST_CASE("where the memory is short for two, one process measures the model, and both what is between them") {
  const fs::path folder = work_folder("profile_alone");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const Reference reference = read_reference("dlrm");
  const std::string program = folder / "program";
  graphpipe_output({"profile", reference.folder + "/model.onnx", "--loss", reference.loss, "--batch", "8", "--steps",
                    "3", "--keep", program, "-o", folder / "profile.json", "-q"});
  wire::RunOptions run;
  run.data.steps = 3;
  run.launch.alone = true;
  const Result<driver::RunOutcome> outcome = driver::launch_profile(program, 2, run);
  REQUIRE(outcome.ok());
  CHECK(outcome->exit_code == 0);
  for (const char* line : {"op 0 8 ", "link ", "runtime "}) CHECK(outcome->report.find(line) != std::string::npos);
}
