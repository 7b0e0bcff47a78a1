#include "tests/fuzz/targets.h"

#include "cost/fold.h"
#include "files/cluster.h"
#include "files/dnn_partitioning_profile.h"
#include "files/pipedream_profile.h"
#include "files/piper_profile.h"
#include "files/plan.h"
#include "files/profile.h"
#include "files/schedule_csv.h"
#include "files/schedule_file.h"
#include "files/stage_dag.h"
#include "files/strict_json.h"
#include "ir/graph_text.h"
#include "ir/rewrite.h"
#include "ir/verify_graph.h"
#include "scheduler/standalone/infer_stages.h"
#include "support/check.h"
#include "tests/files/random_plan.h"
#include "tests/fuzz/onnx_target.h"
#include "tests/fuzz/runtime_targets.h"
#include "tests/support/random_graph.h"

namespace graphpipe::tests {
namespace {

// Problems must be printable: no byte of a hostile file reaches a terminal.
template <typename T>
void check_problems(const Result<T>& result) {
  GP_CHECK(result.ok() == result.problems().empty());
  for (const Diagnostic& problem : result.problems())
    for (char c : to_line(problem)) GP_CHECK(c >= 0x20 && c < 0x7f);
}

void run_json(std::string_view input) { check_problems(files::scan_json(input)); }

std::vector<std::string> json_seeds() {
  return {R"({"a": [1, -2.5e3, true, null, "x\u00e9\ud83d\ude00"], "b": {"a": {}}})",
          "[[[[]]], {}, 0.1, \"\xc3\xa9\"]"};
}

// What a reader accepts prints, reads back the same and prints the same.
template <typename Read, typename Print>
void check_round_trip(std::string_view input, Read read, Print print) {
  const auto first = read(input);
  check_problems(first);
  if (!first.ok()) return;
  const std::string printed = print(*first);
  const auto second = read(printed);
  GP_CHECK(second.ok());
  GP_CHECK(print(*second) == printed);
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

void run_schedule(std::string_view input) {
  check_round_trip(input, files::parse_schedule_file, files::print_schedule_file);
}

std::vector<std::string> schedule_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(files::print_schedule_file({.plan_digest = "", .schedule = random_schedule(random)}));
  }
  return seeds;
}

// Any orders at all get a verdict: a whole schedule, or what is wrong with one of its rows.
void check_verdict(const ir::Schedule& orders, scheduler::EdgeNumbers numbers) {
  const scheduler::Verdict verdict = scheduler::complete_schedule(orders, numbers, {});
  GP_CHECK(verdict.whole.has_value() != verdict.problem.has_value());
  if (!verdict.problem) return;
  const int program = verdict.problem->program, position = verdict.problem->position;
  GP_CHECK(program < static_cast<int>(orders.programs.size()) && !verdict.problem->what.empty());
  if (program >= 0)
    GP_CHECK(position <= static_cast<int>(orders.programs[static_cast<size_t>(program)].actions.size()));
}

void run_schedule_binary(std::string_view input) {
  check_round_trip(input, files::parse_schedule_binary, files::print_schedule_binary);
}

std::vector<std::string> schedule_binary_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(files::print_schedule_binary({.plan_digest = "", .schedule = random_schedule(random)}));
  }
  return seeds;
}

void run_schedule_lists(std::string_view input) {
  const Result<ir::Schedule> schedule = files::parse_schedule_lists(input);
  check_problems(schedule);
  if (schedule.ok()) check_verdict(*schedule, scheduler::EdgeNumbers::kAsRows);
}

std::vector<std::string> schedule_lists_seeds() {
  return {
      R"--({"policy": "a", "programs": [["0F[0,1)", "0F[1,2)", "0B[0,1)", "0B[1,2)"], ["1F[0,1)", "1B[0,1)",
              "1F[1,2)", "1B[1,2)"]]})--",
      R"--({"slots": [1, 1], "programs": [["0F[0,1)s0", "0SEND_F[0,1)e0s0"], ["1RECV_F[0,1)e0s0", "1F[0,1)s0"]]})--"};
}

void run_schedule_csv(std::string_view input) {
  check_round_trip(input, files::parse_schedule_csv, files::print_schedule_csv);
  if (const auto csv = files::parse_schedule_csv(input); csv.ok())
    check_verdict(files::orders_of(*csv).schedule, scheduler::EdgeNumbers::kChain);
}

std::vector<std::string> schedule_csv_seeds() {
  return {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1B0\n",
          "0F0,0SEND_F0,0RECV_B0,0B0\n,1RECV_F0,1F0,1B0,1SEND_B0\n", "r0:0F0,r0:0B0,0REDUCE_GRAD\nr1:0F1,r1:0B1\n",
          "0UNSHARD,0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2,0RESHARD\n"};
}

void run_schedule_text(std::string_view input) {
  check_round_trip(input, ir::parse_schedule, ir::print_schedule);
  if (const auto schedule = ir::parse_schedule(input); schedule.ok())
    check_verdict(*schedule, scheduler::EdgeNumbers::kAsRows);
}

std::vector<std::string> schedule_text_seeds() {
  std::vector<std::string> seeds = {
      "schedule a\nslots 1 1\ndevice 0: 0F[0,1)s0 0SEND_F[0,1)e0s0 0RECV_B[0,1)e0s0 0B[0,1)s0\n"
      "device 1: 1RECV_F[0,1)e0s0 1F[0,1)s0 1B[0,1)s0 1SEND_B[0,1)e0s0\n",
      "schedule b\ndevice 0: 0F[0,2) 0F[2,4) 0I[0,2) 0W[0,2) 0B[2,4) 0STEP[0,4)v1\n"};
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    seeds.push_back(ir::print_schedule(random_schedule(random)));
  }
  return seeds;
}

// What is accepted is a stage graph in topological order, with one of everything per stage.
void run_stage_dag(std::string_view input) {
  const Result<files::StageDag> dag = files::parse_stage_dag(input);
  check_problems(dag);
  if (!dag.ok()) return;
  const size_t stages = dag->predecessors.size();
  GP_CHECK(stages > 0 && dag->micro_batch_size.size() == stages && dag->k.size() == stages && dag->batch >= 0);
  for (size_t stage = 0; stage < stages; ++stage) {
    for (const int before : dag->predecessors[stage]) GP_CHECK(before >= 0 && before < static_cast<int>(stage));
    GP_CHECK(dag->micro_batch_size[stage] >= 1 && dag->k[stage] >= 1);
    GP_CHECK(dag->batch == 0 || dag->micro_batch_size[stage] <= dag->batch);
  }
  for (const std::vector<double>* costs : {&dag->forward, &dag->backward}) {
    GP_CHECK(costs->empty() || costs->size() == stages);
    for (const double cost : *costs) GP_CHECK(cost >= 0);
  }
}

std::vector<std::string> stage_dag_seeds() {
  return {R"({"predecessors": [[], [0], [0], [1, 2]], "micro_batches": 8})",
          R"({"predecessors": [[], [], [0, 1]], "micro_batch_size": [1, 2, 4], "k": [4, 2, 1], "batch": 16,
              "forward": [1, 2, 3], "backward": 2.5, "latency": 0.5})",
          R"({"predecessors": [[]], "batch": 3, "cost_per_sample": {"forward": 1, "backward": [2]}})"};
}

// What the verifier accepts, every helper must take.
void run_graph(std::string_view input) {
  check_round_trip(input, ir::parse_graph, ir::print_graph);
  const Result<ir::Graph> graph = ir::parse_graph(input);
  if (!graph.ok()) return;
  const Status verified = ir::verify_graph(*graph);
  check_problems(verified);
  if (!verified.ok()) return;
  const ir::Graph kept = ir::keep_nodes(*graph, ir::nodes_needed(*graph));
  GP_CHECK(ir::verify_graph(kept).ok());
}

std::vector<std::string> graph_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 12; ++seed) seeds.push_back(ir::print_graph(random_graph(seed)));
  return seeds;
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

const std::vector<std::string_view> kScheduleWords = {
    "0",       "1",          "F",          "B",      "I",      "W",      "r1:",    ",",           "\n",
    "(",       ")",          ";",          "[0,1)",  "e0",     "s0",     "v1",     "p1",          "c1",
    "o",       " ",          "R",          "SEND_F", "RECV_F", "SEND_B", "RECV_B", "OVERLAP_F_B", "UNSHARD",
    "device ", "2147483648", "1073741824", ": ",     "STEP",   "REDUCE", "NORM",   "FREE",        "PUBLISH",
    "SLICE",   "CONCAT",     "OFFLOAD",    "RELOAD", "FLUSH",  "slots ", "-1",     "\r"};

const std::vector<std::string_view> kJsonWords = {"{",     "}",  "[",  "]",          ":",    ",",          "null",
                                                  "1e400", "-1", "\"", "\"schema\"", "true", "4294967296", "\\u0000"};

std::vector<FuzzTarget> compiler_targets() {
  return {
      {"onnx", run_onnx, onnx_seeds, {"Identity", "If", "axis", "\xff\xff\xff\xff\x0f", "N"}, mutate_onnx},
      {"strict_json", run_json, json_seeds, kJsonWords},
      {"plan", run_plan, plan_seeds, kJsonWords},
      {"cluster", run_cluster, cluster_seeds, kJsonWords},
      {"profile", run_profile, profile_seeds, kJsonWords},
      {"pipedream_profile", run_pipedream, pipedream_seeds, kPipedreamWords},
      {"piper_profile", run_piper, piper_seeds, kJsonWords},
      {"dnn_partitioning_profile", run_dnn_partitioning, dnn_partitioning_seeds, kJsonWords},
      {"schedule_file", run_schedule, schedule_seeds, kJsonWords},
      {"schedule_binary",
       run_schedule_binary,
       schedule_binary_seeds,
       {"graphpipe.schedule/1", "\x0a", "\x12", "\x1a", "\x08\x01", "\xff\xff\xff\xff\x0f", "RECV_F", "\x80"}},
      {"schedule_lists", run_schedule_lists, schedule_lists_seeds, kScheduleWords},
      {"schedule_csv", run_schedule_csv, schedule_csv_seeds, kScheduleWords},
      {"schedule_text", run_schedule_text, schedule_text_seeds, kScheduleWords},
      {"stage_dag", run_stage_dag, stage_dag_seeds, kJsonWords},
      {"graph_text",
       run_graph,
       graph_seeds,
       {"%0", "%1", "n0", "p0", " @none", " @axis 0", "*B", "^2", "9223372036854775807", " phase I", " phase W",
        " serves n0", "inf", "nan", "_", "\"", "\\x00", "\n"}},
  };
}

}  // namespace

std::span<const FuzzTarget> fuzz_targets() {
  static const std::vector<FuzzTarget> targets = [] {
    std::vector<FuzzTarget> all = compiler_targets();
    for (FuzzTarget& target : runtime_targets()) all.push_back(std::move(target));
    return all;
  }();
  return targets;
}

}  // namespace graphpipe::tests
