// graphpipe sweep: the plans that `plan` makes, one by one, and no plan twice.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace fs = std::filesystem;

namespace {

const std::string kModel = GRAPHPIPE_SOURCE_DIR "/tests/data/models/clip_like/model.onnx";

// A folder of the test's own, with the file.
struct SweepFolder {
  SweepFolder(const std::string& name, const std::string& axes, const std::string& plot = "", int batch = 16)
      : path(work_folder("sweep_" + name)) {
    fs::remove_all(path);
    fs::create_directories(path);
    std::ofstream(file()) << "[flags]\nmodel = \"" << kModel
                          << "\"\nloss = \"contrastive:similarity\"\nbatch = " << batch
                          << "\ncluster = \"default\"\n[axes]\n"
                          << axes << "\n"
                          << plot;
  }
  std::string file() const { return path + "/sweep.toml"; }
  std::string results() const { return path + "/results"; }
  nlohmann::json table() const { return nlohmann::json::parse(read_text(results() + "/table.json")); }
  /// Exit code, and what it says.
  std::pair<int, std::string> run(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> words{
        GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "sweep", file(), "-o", results(), "--jobs", "2"};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto finished = driver::run_and_collect({.arguments = words});
    REQUIRE(finished.ok());
    return {finished->ending.exit_code, finished->output};
  }
  std::string path;
};

size_t count_lines(const std::string& text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

}  // namespace

TEST_CASE("a sweep has a row for each combination, with the numbers of `plan`") {
  const SweepFolder folder("rows", "devices = [1, 2, 3]\nplanner = [\"graphpipe\", \"sequential\"]",
                           "[plot]\nx = \"devices\"\ny = \"simulated_step\"\nline = \"planner\"\n");
  const auto [code, said] = folder.run();
  CAPTURE(said);
  REQUIRE(code == 0);
  CHECK(said.find("6 of 6 plans in ") == 0);
  const nlohmann::json table = folder.table();
  REQUIRE(table.size() == 6);
  CHECK(table[1]["devices"] == "1");
  CHECK(table[1]["planner"] == "sequential");
  for (const nlohmann::json& row : {table[2], table[5]}) {
    const nlohmann::json plan = nlohmann::json::parse(
        graphpipe_output({"plan", kModel, "--loss", "contrastive:similarity", "--batch", "16", "--cluster", "default",
                          "--devices", row["devices"], "--planner", row["planner"], "--json"}));
    CHECK(row["simulated_step"] == plan["simulated_step"]);
    CHECK(row["stage_count"] == plan["stages"].size());
    CHECK(row["peak_bytes"] == *std::ranges::max_element(plan["peak_bytes"]));
    CHECK(row["steady_step"].is_null());
  }
  const std::string csv = read_text(folder.results() + "/table.csv");
  CHECK(csv.starts_with("devices,planner,simulated_step,"));
  CHECK(count_lines(csv) == 7);
  const std::string svg = read_text(folder.results() + "/plot.svg");
  CHECK(svg.find("<svg") == 0);
  CHECK(svg.find("sequential") != std::string::npos);
  CHECK(svg.find(" us</text>") != std::string::npos);  // the axis of seconds, with its unit
  // Lines are told apart without colours.
  CHECK(svg.find("stroke-dasharray=\"none\"") != std::string::npos);
  CHECK(svg.find("stroke-dasharray=\"7 3\"") != std::string::npos);
}

TEST_CASE("models, batches, micro-batches, policies, memory and links are axes as all flags of `plan` are") {
  const std::vector<std::string> axes{"model", "batch", "micro-batch", "policy", "memory", "bandwidth"};
  const SweepFolder folder("axes", "");
  const std::string copy = folder.path + "/copy.onnx";
  fs::copy_file(kModel, copy);
  std::ofstream(folder.file()) << "[flags]\nloss = \"contrastive:similarity\"\ncluster = \"default\"\ndevices = "
                                  "2\nplanner = \"graphpipe\"\ncontrastive = \"micro-batch\"\n[axes]\n"
                               << "model = [\"" << kModel << "\", \"" << copy << "\"]\nbatch = [8, 12]\n"
                               << "micro-batch = [2, 4]\npolicy = [\"kfkb\", \"gpipe\"]\nmemory = [1e9]\n"
                               << "bandwidth = [1e9, 1e10]\n";
  const auto [code, said] = folder.run();
  CAPTURE(said);
  REQUIRE(code == 0);
  const nlohmann::json table = folder.table();
  CHECK(table.size() == 32);
  std::set<double> steps;
  for (const nlohmann::json& row : table) {
    std::vector<std::string> words{
        "plan", row["model"], "--loss",  "contrastive:similarity", "--cluster",   "default",   "--devices",
        "2",    "--json",     "--quiet", "--contrastive",          "micro-batch", "--planner", "graphpipe"};
    for (size_t axis = 1; axis < axes.size(); ++axis) words.insert(words.end(), {"--" + axes[axis], row[axes[axis]]});
    CHECK(row["simulated_step"] == nlohmann::json::parse(graphpipe_output(words))["simulated_step"]);
    steps.insert(row["simulated_step"].get<double>());
  }
  CHECK(steps.size() > 4);
}

TEST_CASE("a sweep that was killed makes the missing plans alone, and what changed is made again") {
  const SweepFolder folder("again", "planner = [\"graphpipe\"]\ndevices = [1, 2]");
  REQUIRE(folder.run().first == 0);
  const std::string cells = folder.results() + "/cells.jsonl", table = read_text(folder.results() + "/table.json");
  const std::string whole = read_text(cells);
  REQUIRE(count_lines(whole) == 2);
  std::ofstream(cells) << whole.substr(0, whole.size() - 100);
  REQUIRE(folder.run().first == 0);
  // The cut line, which is none, and one new.
  CHECK(count_lines(read_text(cells)) == 3);
  REQUIRE(folder.run().first == 0);
  CHECK(count_lines(read_text(cells)) == 3);
  const nlohmann::json again = folder.table(), before = nlohmann::json::parse(table);
  for (size_t i = 0; i < 2; ++i) CHECK(again[i]["simulated_step"] == before[i]["simulated_step"]);
  std::ofstream(folder.file(), std::ios::app) << "micro-batch = [4]\n";
  REQUIRE(folder.run().first == 0);
  CHECK(count_lines(read_text(cells)) == 5);
}

TEST_CASE("a plan whose process ends by a signal is named, and the others are in the tables") {
  const SweepFolder folder("ended", "devices = [1, 64, 2]\npolicy = [\"auto\"]", "", 512);
  // Eight seconds of processor time: 64 devices take 40, two take 2.
  const auto finished = driver::run_and_collect(
      {.arguments = {"bash", "-c", "ulimit -t 8; exec \"$@\"", "sweep", GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "sweep",
                     folder.file(), "-o", folder.results(), "--jobs", "2"}});
  REQUIRE(finished.ok());
  CAPTURE(finished->output);
  CHECK(finished->ending.exit_code == 5);
  CHECK(finished->output.find("--devices=64") != std::string::npos);
  CHECK(finished->output.find("it ended by signal") != std::string::npos);
  const nlohmann::json table = folder.table();
  REQUIRE(table.size() == 3);
  CHECK(table[0]["simulated_step"].is_number());
  CHECK(table[1]["simulated_step"].is_null());
  CHECK(table[2]["simulated_step"].is_number());
  // Only what ended well is kept for the next sweep.
  CHECK(count_lines(read_text(folder.results() + "/cells.jsonl")) == 2);
}

TEST_CASE("at this machine's prices a sweep measures once, goes on, and plans anew after another calibration") {
  const std::string folder = work_folder("sweep_calibrated"), cache = folder + "/cache", results = folder + "/results";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/sweep.toml")
      << "[flags]\nmodel = \"" << kModel
      << "\"\nloss = \"contrastive:similarity\"\nbatch = 16\nplanner = \"graphpipe\"\n"
         "[axes]\ndevices = [2, 3]\n";
  const auto lines_after_sweep = [&] {
    const auto finished = driver::run_and_collect(
        {.arguments = {"env", "-u", "GRAPHPIPE_CALIBRATION", "XDG_CACHE_HOME=" + cache,
                       GRAPHPIPE_BINARY_DIR "/bin/graphpipe", "sweep", folder + "/sweep.toml", "-o", results}});
    REQUIRE(finished.ok());
    CAPTURE(finished->output);
    REQUIRE(finished->ending.exit_code == 0);
    return count_lines(read_text(results + "/cells.jsonl"));
  };
  CHECK(lines_after_sweep() == 2);
  CHECK(lines_after_sweep() == 2);
  // Of two processes, which stand for more.
  REQUIRE(std::distance(fs::directory_iterator(cache + "/graphpipe"), fs::directory_iterator()) == 1);
  const fs::path calibration = fs::directory_iterator(cache + "/graphpipe")->path();
  nlohmann::json cluster = nlohmann::json::parse(read_text(calibration));
  nlohmann::json& rate = cluster["devices"][0]["flops_per_second"];
  rate = 2 * rate.get<double>();
  std::ofstream(calibration) << cluster;
  CHECK(lines_after_sweep() == 4);
}

TEST_CASE("combinations without a plan are rows; flags that `plan` has not, and sweeps without any plan, are errors") {
  const SweepFolder some("some", "devices = [2]\nstages = [2, 500]");
  const auto [code, said] = some.run();
  CAPTURE(said);
  CHECK(code == 0);
  CHECK(said.find("1 without a plan") != std::string::npos);
  const nlohmann::json table = some.table();
  REQUIRE(table.size() == 2);
  CHECK(table[0]["error"] == "");
  CHECK(table[1]["error"] != "");
  CHECK(table[1]["simulated_step"].is_null());

  const std::tuple<const char*, int, const char*> wrong[] = {
      {"device = [2]", 3, "has no flag '--device'"},
      {"devices = 2", 3, "devices has no list of values"},
      {"devices = [2, 2]", 3, "stands there twice"},
      {"batch = [8]", 3, "stands below [flags] and below [axes]"},
      {"output = [\"x\"]", 3, "has no flag '--output'"},
      {"devices = [2]\n[plot]\nx = \"batch\"\ny = \"simulated_step\"", 3, "is no axis of the sweep"},
      {"devices = [2]\n[plot]\nx = \"devices\"\ny = \"speed\"", 3, "is no column of numbers"},
      {"devices = [2", 3, "line"},
      {"planner = [\"grahpipe\"]", 2, "there is no 'grahpipe'"},
  };
  for (const auto& [axes, expected, part] : wrong) {
    const SweepFolder folder("wrong", axes);
    const auto [end, words] = folder.run();
    CAPTURE(axes);
    CAPTURE(words);
    CHECK(end == expected);
    CHECK(words.find(part) != std::string::npos);
  }
}

TEST_CASE(
    "a sweep over memory and bandwidth is one of the machine that the plans are for, and draws what --plot names") {
  const SweepFolder folder("machine", "devices = [4]\nbandwidth = [1e6, 1e9]\nmemory = [250000, 1000000000]");
  const auto [code, said] = folder.run({"--plot", "bandwidth,simulated_step,memory"});
  CAPTURE(said);
  REQUIRE(code == 0);
  CHECK(fs::exists(folder.results() + "/plot.svg"));
  const nlohmann::json table = folder.table();
  REQUIRE(table.size() == 4);
  // Of these plans; a search with more memory or faster links may end in another one.
  const auto step = [&](size_t row) {
    return table[row]["error"] == "" ? table[row]["simulated_step"].get<double>() : INFINITY;
  };
  for (const size_t slow : {0U, 1U}) CHECK(step(slow + 2) < step(slow));
  for (const size_t small : {0U, 2U}) CHECK(step(small + 1) <= step(small));
  for (const auto& row : table)
    if (row["error"] == "" && row["memory"] == "250000") CHECK(row["peak_bytes"].get<double>() <= 250000);
  const auto [end, words] = folder.run({"--plot", "batch,simulated_step"});
  CHECK(end == 2);
  CHECK(words.find("--plot batch,simulated_step") != std::string::npos);
}

TEST_CASE("a sweep over the profile of another project names no model") {
  const SweepFolder folder("profile", "");
  std::ofstream(folder.file()) << "[flags]\nprofile = \"" GRAPHPIPE_SOURCE_DIR
                               << "/tests/data/pipedream/alexnet.txt\"\nprofile-format = \"pipedream\"\ndevices = 4\n"
                                  "planner = \"pipedream\"\n[axes]\nbandwidth = [1e8, 1e9]\nmemory = [4e9, 16e9]\n";
  const auto [code, said] = folder.run();
  CAPTURE(said);
  REQUIRE(code == 0);
  const nlohmann::json table = folder.table();
  REQUIRE(table.size() == 4);
  for (const auto& row : table) CHECK(row["error"] == "");
  CHECK(table[2]["simulated_step"].get<double>() <= table[0]["simulated_step"].get<double>());
}
