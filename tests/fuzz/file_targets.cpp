// The readers of files that a user writes or brings: plans, clusters, profiles.
#include "cost/fold.h"
#include "files/cluster.h"
#include "files/dnn_partitioning_profile.h"
#include "files/pipedream_profile.h"
#include "files/piper_profile.h"
#include "files/plan.h"
#include "files/profile.h"
#include "files/strict_json.h"
#include "tests/files/random_plan.h"
#include "tests/fuzz/reader_checks.h"
#include "tests/fuzz/targets.h"

namespace graphpipe::tests {
namespace {

void run_json(std::string_view input) { check_problems(files::scan_json(input)); }

std::vector<std::string> json_seeds() {
  return {R"({"a": [1, -2.5e3, true, null, "x\u00e9\ud83d\ude00"], "b": {"a": {}}})",
          "[[[[]]], {}, 0.1, \"\xc3\xa9\"]"};
}

void run_plan(std::string_view input) { check_round_trip(input, files::parse_plan, files::print_plan); }

std::vector<std::string> plan_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 8; ++seed) seeds.push_back(files::print_plan(random_plan(seed)));
  return seeds;
}

void run_cluster(std::string_view input) { check_round_trip(input, files::parse_cluster, files::print_cluster); }

std::vector<std::string> cluster_seeds() {
  return {files::print_cluster(ir::equal_devices(1)), files::print_cluster(ir::equal_devices(4))};
}

void run_profile(std::string_view input) { check_round_trip(input, files::parse_profile, files::print_profile); }

std::vector<std::string> profile_seeds() {
  ir::Profile profile;
  profile.operators = {{.signature = ModelText("Conv"), .samples = Samples(1), .forward = Seconds(0.5)}};
  profile.links = {{.level = 0, .latency = Seconds(1e-6), .bandwidth = BytesPerSecond(1e9)}};
  return {files::print_profile(profile)};
}

// What is accepted is a plan graph that its verifier accepts, and that can be folded.
void check_imported(const Result<ir::ImportedProfile>& profile) {
  check_problems(profile);
  if (!profile.ok()) return;
  GP_CHECK(ir::verify_plan_graph(profile->graph).ok());
  GP_CHECK(ir::verify_plan_graph(cost::fold_backward(profile->graph).graph).ok());
}

void run_piper(std::string_view input) { check_imported(files::parse_piper_profile(input)); }

std::vector<std::string> piper_seeds() {
  const std::string variant = R"({"id": "vanilla", "timePerSample": 0.5, "parameterSize": 8, "memoryUsageA": 3,
      "memoryUsageB": 4, "syncTimeFw": {"1": 2}, "syncTimeBw": {"2": 5}})";
  const std::string degrees = R"({"1": [)" + variant + "," + variant + R"(], "2": [)" + variant + "]}";
  return {R"({"maxDevices": 3, "mbsInBatch": 8, "nodes": [{"id": 1, "TMPCs": )" + degrees +
          R"(}, {"id": 2, "name": "b", "TMPCs": )" + degrees +
          R"(}], "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 16}]})"};
}

void run_dnn_partitioning(std::string_view input) { check_imported(files::parse_dnn_partitioning_profile(input)); }

std::vector<std::string> dnn_partitioning_seeds() {
  const std::string node = R"("supportedOnFpga": 1, "fpgaLatency": 2, "cpuLatency": 20, "isBackwardNode": false,
      "size": 10, "colorClass": 3, "layerId": 4)";
  return {R"({"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 100, "nodes": [{"id": 1, )" + node + R"(}, {"id": 2, )" +
          node + R"(}], "edges": [{"sourceId": 1, "destId": 2, "cost": 4, "size": 64}]})"};
}

void run_pipedream(std::string_view input) { check_imported(files::parse_pipedream_profile(input)); }

std::vector<std::string> pipedream_seeds() {
  const auto node = [](const std::string& id, const std::string& what, const std::string& activation) {
    return id + " -- " + what +
           " -- forward_compute_time=1.5, backward_compute_time=2.25, activation_size=" + activation +
           ", parameter_size=64\n";
  };
  return {node("node1", "Input0", "8") + node("node2", "Conv2d(3, 64, bias=False)", "[16.0; 32.0]") +
              node("node3", "__getitem__(0)", "4") + node("node4", "Linear", "0") +
              "\tnode1 -- node2\n\tnode2 -- node3\n \tnode2 -- node4\n",
          "a -- b -- backward_compute_time=0, forward_compute_time=1e3, parameter_size=[], activation_size=1 -- "
          "stage_id=0\r\n"};
}

const std::vector<std::string_view> kPipedreamWords = {
    " -- ",  "\tnode1 -- node4\n", "node2", "=", ", ", "[;]", "nan", "-1", "1e999", "\n", "\t", "\r\n",
    "Input", "stage_id="};

}  // namespace

FuzzTarget fuzz_strict_json() { return {"strict_json", run_json, json_seeds, kJsonWords}; }

FuzzTarget fuzz_plan() { return {"plan", run_plan, plan_seeds, kJsonWords}; }

FuzzTarget fuzz_cluster() { return {"cluster", run_cluster, cluster_seeds, kJsonWords}; }

FuzzTarget fuzz_profile() { return {"profile", run_profile, profile_seeds, kJsonWords}; }

FuzzTarget fuzz_pipedream_profile() { return {"pipedream_profile", run_pipedream, pipedream_seeds, kPipedreamWords}; }

FuzzTarget fuzz_piper_profile() { return {"piper_profile", run_piper, piper_seeds, kJsonWords}; }

FuzzTarget fuzz_dnn_partitioning_profile() {
  return {"dnn_partitioning_profile", run_dnn_partitioning, dnn_partitioning_seeds, kJsonWords};
}

}  // namespace graphpipe::tests
