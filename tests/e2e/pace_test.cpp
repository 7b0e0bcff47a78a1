// Paced runs: real processes, messages and schedules in the plan's times, without a compiled folder.

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/pipeline_run.h"

namespace graphpipe::tests {
namespace {

nlohmann::json run_paced(const std::string& plan, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> words = {"run", plan, "--pace", "--json", "--quiet"};
  words.insert(words.end(), flags.begin(), flags.end());
  return nlohmann::json::parse(graphpipe_output(words));
}

std::string make_paced_plan(const std::string& name, const std::vector<std::string>& flags) {
  const Reference reference = read_batch_reference("mmt");
  const std::string plan = work_folder("pace-" + name) + "/plan.json";
  make_plan(reference, plan, flags);
  return plan;
}

TEST_CASE("a paced step is never shorter than the simulated one without all-reduces, and little longer") {
  const std::string plan =
      make_paced_plan("graph", {"--cluster", "summit", "--devices", "4", "--planner", "graphpipe", "--stages", "4"});
  const nlohmann::json paced = run_paced(plan, {"--steps", "3", "--pace-scale", "500"});
  CHECK(paced["devices"] == 4);
  CHECK(paced["transport"] == "shm");
  CHECK(paced["pace_scale"] == 500);
  CHECK(paced["step_seconds"].size() == 3);
  // A rank may hear of the start a little before rank 0's clock is read by the next.
  CHECK(paced["ratio"].get<double>() > 0.99);
  CHECK(paced["ratio"].get<double>() < 5);  // of a very busy machine; times that are scaled twice are far above
  CHECK(paced["sent_bytes"].get<double>() > 0);
}

TEST_CASE("replicas and asynchronous schedules run paced, also over TCP and with a part of the bytes") {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--planner", "data-parallel"}, {"--planner", "sequential", "--policy", "pipedream"}}) {
    std::vector<std::string> all = {"--cluster", "summit", "--devices", "2"};
    all.insert(all.end(), flags.begin(), flags.end());
    const std::string plan = make_paced_plan("two", all);
    const nlohmann::json paced = run_paced(plan, {"--transport", "tcp", "--pace-bytes", "0.5", "--pace-scale", "200"});
    CHECK(paced["transport"] == "tcp");
    CHECK(paced["pace_bytes"] == 0.5);
    CHECK(paced["ratio"].get<double>() > 0.7);
    CHECK(paced["ratio"].get<double>() < 5);
  }
}

// docs/schedules.md, section 3: the pipeline drains once in --drain-every batches.
TEST_CASE("weight versions flow through the batches between two drains") {
  const Reference reference = read_batch_reference("mmt");
  const std::string folder = work_folder("pace-flow");
  std::filesystem::create_directories(folder);
  double drained = 0, flowing = 0, undrained = 0;
  for (const auto& [batches, measured] : {std::pair("1", &drained), {"4", &flowing}}) {
    const std::string plan = folder + "/plan" + batches + ".json";
    std::vector<std::string> words = {"plan", reference.folder + "/model.onnx", "--loss", reference.loss};
    for (const char* word : {"--cluster", "summit", "--devices", "2", "--planner", "sequential", "--stages", "2",
                             "--policy", "2bw", "--micro-batch", "2", "--batch", "8", "--quiet", "--json"})
      words.emplace_back(word);
    words.insert(words.end(), {"--drain-every", batches, "-o", plan});
    const nlohmann::json made = nlohmann::json::parse(graphpipe_output(words));
    CHECK(std::to_string(made["drain_every"].get<int>()) == batches);
    undrained = made["steady_step"];
    *measured = run_paced(plan, {"--steps", "3", "--pace-scale", "50"})["measured_step"];
  }
  CHECK(flowing < 0.95 * drained);
  CHECK(flowing > 0.95 * undrained);
}

TEST_CASE("replicas that have no micro-batch of a step reduce with the others") {
  const std::string plan = work_folder("pace-idle") + "/plan.json";
  make_plan(read_reference("dlrm"), plan,
            {"--devices", "3", "--policy", "data-parallel", "--planner", "equal-split", "--micro-batch", "8"});
  CHECK(run_paced(plan, {"--steps", "1"})["devices"] == 3);
}

TEST_CASE("flags of a training are refused, and those of pacing without it") {
  const std::string plan = make_paced_plan("refused", {"--cluster", "summit", "--devices", "2"});
  graphpipe_output({"run", plan, "--pace", "--lr", "0.1"}, 2);
  graphpipe_output({"run", plan, "--pace", "--save", "x.safetensors"}, 2);
  graphpipe_output({"run", plan, "--pace-scale", "2"}, 2);
  graphpipe_output({"run", plan, "--trusted-root", "/"}, 2);
  graphpipe_output({"run", plan, "--pace", "--trace", plan}, 2);
  CHECK(graphpipe_output({"run", plan, "--pace", "--pace-scale", "1e300"}, 2).empty());
  graphpipe_output({"run", plan + ".missing", "--pace"}, 3);
}

}  // namespace
}  // namespace graphpipe::tests
