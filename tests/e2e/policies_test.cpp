// Every policy of the list on one model, from the command line: its programs have the bits of the serial interpreter of
// the same plan, and where it is synchronous the numbers of the unpartitioned model. Then the views of what ran.

#include "scheduler/policies/policies.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/text.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/e2e/policy_cases.h"
#include "tests/support/case_count.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using nlohmann::json;

namespace {

void check_case(const std::string& folder, const PolicyCase& c) {
  const Reference reference = read_reference("dlrm");
  const std::string what = text(c.policy, " ", joined(c.flags));
  CAPTURE(what);
  std::vector<std::string> flags = {"--policy", c.policy};
  flags.insert(flags.end(), c.flags.begin(), c.flags.end());
  compile(reference, folder, flags);
  const json report = json::parse(verify(reference, folder));
  CHECK(report["bitwise"] == true);
  CHECK(report["asynchronous"] == scheduler::find_policy(c.policy)->asynchronous);
  if (!scheduler::find_policy(c.policy)->asynchronous) CHECK(report["by_tolerance"] == true);
}

void check_cases(const std::string& folder, const std::vector<PolicyCase>& cases) {
  std::string before;
  for (PolicyCase c : cases) {
    // A policy with other flags, unless all cases run.
    if (std::exchange(before, c.policy) == c.policy && !all_cases()) continue;
    c.flags.insert(c.flags.end(), {"--planner", "equal-split", "--micro-batch", "1"});
    check_case(folder, c);
  }
}

}  // namespace

TEST_CASE("the cases below are all policies that train") {
  std::set<std::string> tested, all;
  for (const PolicyCase& c : cases_of_cut()) tested.insert(c.policy);
  for (const PolicyCase& c : cases_of_whole()) tested.insert(c.policy);
  for (const scheduler::Policy& policy : scheduler::all_policies())
    if (!policy.forward_only) all.emplace(policy.name);
  CHECK(tested == all);
}

TEST_CASE("every policy of a cut model gives the bits of the interpreter, and one model's numbers if synchronous") {
  check_cases(work_folder("policies_cut"), cases_of_cut());
}

TEST_CASE("a parameter server of its own makes the updates of the schedule where none may overtake another") {
  const Reference reference = read_reference("dlrm");
  const std::string folder = work_folder("served");
  compile(reference, folder,
          {"--policy", "parameter-server", "--devices", "3", "--planner", "equal-split", "--micro-batch", "1"});
  const auto run = [&](const std::string& tag, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"run", folder,   "--data", reference.folder + "/data", "--steps", "5", "--lr",
                                      "0.1", "--json", "--save", folder + "." + tag};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(graphpipe_output(words));
  };
  const json scheduled = run("scheduled", {}), served = run("served", {"--staleness", "2"});
  CHECK(served["losses"] == scheduled["losses"]);
  CHECK(same_bytes(folder + ".served", folder + ".scheduled"));
  CHECK(served["largest_staleness"] == 2);
  CHECK(served["updates"] == 40);
  CHECK(!scheduled.contains("updates"));
  CHECK(served["peak_bytes"].size() == 4);
  const json late = run("late", {"--staleness", "7"});
  CHECK(late["largest_staleness"] <= 7);
  CHECK(late["losses"].size() == 5);
  // What the programs found is in the report that they did not come to write, once.
  const json refused = json::parse(graphpipe_output({"run", folder, "--steps", "1", "--staleness", "1", "--json"}, 2));
  REQUIRE(refused["diagnostics"].size() == 2);
  CHECK(refused["diagnostics"][0]["message"].get<std::string>().starts_with("--staleness 1: while one of 3 workers"));
  const std::string cut = work_folder("policies_cut");
  compile(reference, cut, {"--planner", "equal-split", "--devices", "4", "--micro-batch", "1"});
  graphpipe_output({"run", cut, "--steps", "1", "--staleness", "5"}, 2);
}

TEST_CASE("runs of asynchronous policies take the memory for versions of weights that their plans say") {
  const Reference reference = read_reference("gpt2_like");
  const std::string folder = work_folder("policies_versions");
  compile(reference, folder,
          {"--policy", "pipedream", "--devices", "3", "--planner", "equal-split", "--micro-batch", "2"});
  check_arenas(reference, folder);
}

namespace {

/// Gradients apart or together, one replica after the other, updates at the end of steps or within.
const std::set<std::string> kOfEachKind = {"zb-1p", "pipedream-rr", "gpipe", "kfkb", "2bw"};

// Two branches of unequal depth that meet: tables 0 and 1 (s0) beside two layers (s1, s2), then all together (s3, s4).
std::string branching_plan(bool replicated_join) {
  const std::string join = replicated_join ? R"([3, 5], "replica_mode": "round_robin")" : "[3]";
  return R"({"schema": "graphpipe.plan/1", "batch": 8, "loss": {"kind": "bce", "output": "logit", "label": "click"},
 "optimizer": "sgd",
    "batch_norm": "train", "threads": 1, "planner": "manual", "policy": "kfkb", "stages": [
    {"nodes": [0, 1, 2, 3], "micro_batch": 1, "devices": [0]},
    {"nodes": [6, 7], "micro_batch": 1, "devices": [1]},
    {"nodes": [8, 9], "micro_batch": 1, "devices": [2]},
    {"nodes": [4, 5, 10, 11, 12], "micro_batch": 1, "devices": )" +
         join + R"(},
    {"nodes": [13, 14, 15, 16, 17, 18], "micro_batch": 1, "devices": [4]}]})";
}

}  // namespace

TEST_CASE("policies that take any stages run them where they branch") {
  const std::string folder = work_folder("policies_branching"), plan = folder + ".plan.json";
  const Reference reference = read_reference("dlrm");
  std::filesystem::create_directories(std::filesystem::path(plan).parent_path());
  std::ofstream(plan) << branching_plan(false);
  const json shown = json::parse(graphpipe_output({"plan", reference.folder + "/model.onnx", "--batch", "8", "--loss",
                                                   reference.loss, "--devices", "6", "--plan", plan, "--json"}));
  std::vector<std::vector<int>> predecessors;
  for (const json& stage : shown["stages"]) predecessors.push_back(stage["predecessors"]);
  CHECK(predecessors == std::vector<std::vector<int>>{{}, {}, {1}, {0, 2}, {3}});
  std::set<std::string> listed;
  for (const PolicyCase& c : cases_of_cut()) {  // whose order compiles the stages least often
    const scheduler::Policy& policy = *scheduler::find_policy(c.policy);
    if (policy.shape != scheduler::StageShape::kAny || !listed.insert(c.policy).second) continue;
    if (!all_cases() && !kOfEachKind.contains(c.policy)) continue;
    std::ofstream(plan) << branching_plan(policy.takes_turns);
    check_case(folder, {c.policy, {"--devices", "6", "--plan", plan}});
  }
  for (const scheduler::Policy& policy : scheduler::all_policies())
    if (policy.shape == scheduler::StageShape::kAny && !policy.forward_only)
      CHECK_MESSAGE(listed.contains(std::string(policy.name)), policy.name);
}

namespace {

// A plan with a stage that recomputes, micro-batches of two sizes, and tensors that skip one and two stages.
std::string skipping_plan() {
  return R"({"schema": "graphpipe.plan/1", "batch": 8, "loss": {"kind": "bce", "output": "logit", "label": "click"},
 "optimizer": "sgd",
    "batch_norm": "train", "threads": 1, "planner": "manual", "policy": "kfkb", "stages": [
    {"nodes": [0, 1, 2, 3], "micro_batch": 2, "devices": [0]},
    {"nodes": [6, 7], "micro_batch": 4, "devices": [1], "recompute": true},
    {"nodes": [8, 9], "micro_batch": 2, "devices": [2]},
    {"nodes": [4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 18], "micro_batch": 2, "devices": [3, 4]}]})";
}

}  // namespace

TEST_CASE("stages that all recompute give the same bits") {
  const std::string folder = work_folder("policies_recompute");
  const std::vector<std::string> policies = {"kfkb", "zb-1p", "gpipe"};
  for (const std::string& policy : std::span(policies).first(case_count(2, policies.size()))) {
    check_case(folder,
               {policy, {"--devices", "2", "--planner", "graphpipe", "--stages", "2", "--recompute", "always"}});
    const json shown = json::parse(graphpipe_output({"simulate", folder, "--json"}));
    REQUIRE(shown["stages"].size() == 2);
    for (const json& stage : shown["stages"]) CHECK(stage["recompute"] == true);
  }
}

TEST_CASE("executed as a chain, branches wait for each other, what skips stages passes through, and the bits stay") {
  const std::string folder = work_folder("policies_chain"), straight = folder + ".graph";
  const Reference reference = read_reference("dlrm");
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path());
  const std::string plan = folder + ".plan.json";
  const std::vector<std::string> policies = {"zb-1p", "gpipe", "kfkb", "pipedream"};
  for (const std::string& policy : std::span(policies).first(case_count(2, policies.size()))) {
    std::ofstream(plan) << branching_plan(false);
    check_case(folder, {policy, {"--devices", "6", "--plan", plan, "--execute", "chain"}});
  }
  std::ofstream(plan) << skipping_plan();
  check_case(folder, {"kfkb", {"--devices", "6", "--plan", plan, "--execute", "chain"}});
  const json shown = json::parse(graphpipe_output({"simulate", folder, "--json"}));
  std::vector<std::vector<int>> predecessors;
  for (const json& stage : shown["stages"]) predecessors.push_back(stage["predecessors"]);
  CHECK(predecessors == std::vector<std::vector<int>>{{}, {0}, {1}, {2}});
  CHECK(shown["execute"] == "chain");
  // A plan file, with its schedule, says how it is executed; the flag executes the same cut in the other way.
  compile(reference, straight, {"--devices", "6", "--plan", folder + "/plan.json", "--execute", "graph"});
  const json graph = json::parse(graphpipe_output({"simulate", straight, "--json"}));
  CHECK(graph["execute"] == "graph");
  CHECK(graph["simulated_step"] < shown["simulated_step"]);
  const Trained one = train(reference, folder, false), other = train(reference, straight, false);
  CHECK(same_bytes(one.weights, other.weights));
  for (size_t device = 0; device < one.peak_bytes.size(); ++device)
    CHECK(static_cast<double>(one.peak_bytes[device]) <= 1.05 * static_cast<double>(one.predicted_peaks[device]));
}

namespace {

struct Span {
  double start = 0, end = 0;
};
using Lane = std::pair<int64_t, int64_t>;  // process, thread

struct Trace {
  std::map<int64_t, std::string> processes;
  std::map<Lane, std::vector<Span>> lanes;
  std::map<int64_t, int> counters;              // by process
  std::map<int64_t, std::vector<json>> arrows;  // by id
};

Trace read_trace(const std::string& path) {
  Trace trace;
  const json document = json::parse(read_text(path));
  for (const json& event : document.at("traceEvents")) {
    const std::string phase = event.at("ph");
    const Lane lane{event.at("pid").get<int64_t>(), event.at("tid").get<int64_t>()};
    const double at = event.at("ts");
    if (phase == "X") trace.lanes[lane].push_back({at, at + event.at("dur").get<double>()});
    else if (phase == "C") trace.counters[lane.first] += event.at("args").at("bytes").get<int64_t>() >= 0;
    else if (phase == "s" || phase == "f") trace.arrows[event.at("id").get<int64_t>()].push_back(event);
    else if (event.at("name") == "process_name") trace.processes[lane.first] = event.at("args").at("name");
    else CHECK(phase == "M");
  }
  return trace;
}

// What Perfetto asks for: it drops a span that overlaps another of its lane, and an arrow whose end lies in none.
void check_for_viewers(const Trace& trace) {
  constexpr double kHalfTick = 0.0005;
  for (const auto& [lane, given] : trace.lanes) {
    CAPTURE(lane.first);
    CAPTURE(lane.second);
    std::vector<Span> spans = given;
    std::ranges::sort(
        spans, [](const Span& a, const Span& b) { return std::pair(a.start, a.end) < std::pair(b.start, b.end); });
    size_t overlaps = 0;
    for (size_t i = 1; i < spans.size(); ++i) overlaps += spans[i].start < spans[i - 1].end - kHalfTick;
    CHECK(overlaps == 0);
  }
  for (const auto& [id, ends] : trace.arrows) {
    CAPTURE(id);
    REQUIRE(ends.size() == 2);
    CHECK(ends[0]["ph"] == "s");
    CHECK(ends[1]["ph"] == "f");
    CHECK(ends[0]["ts"].get<double>() <= ends[1]["ts"].get<double>());
    for (const json& end : ends) {
      const double at = end["ts"];
      const auto& spans = trace.lanes.at({end["pid"].get<int64_t>(), end["tid"].get<int64_t>()});
      CHECK(std::ranges::any_of(
          spans, [&](const Span& span) { return at >= span.start - kHalfTick && at <= span.end + kHalfTick; }));
    }
  }
}

size_t spans_of(const Trace& trace, const std::string& kind) {
  size_t count = 0;
  for (const auto& [lane, spans] : trace.lanes)
    if (trace.processes.at(lane.first).ends_with(kind)) count += spans.size();
  return count;
}

}  // namespace

TEST_CASE("a schedule as it was simulated and as it was executed stand side by side in one trace") {
  const std::string folder = work_folder("policies_cut"), executed = folder + "/executed.json",
                    both = folder + "/both.json";
  const Reference reference = read_reference("dlrm");
  compile(reference, folder, {"--planner", "equal-split", "--devices", "4", "--micro-batch", "1"});
  constexpr size_t kSteps = 3;
  graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", std::to_string(kSteps), "--trace",
                    executed, "--quiet"});
  graphpipe_output({"simulate", folder, "--format", "trace", "--executed", executed, "-o", both, "--quiet"});
  const Trace alone = read_trace(executed), trace = read_trace(both);
  check_for_viewers(alone);
  check_for_viewers(trace);
  CHECK(trace.processes.size() == 8);
  CHECK(trace.counters.size() == 8);
  CHECK(spans_of(trace, "simulated") > 0);
  CHECK(spans_of(trace, "executed") == kSteps * spans_of(trace, "simulated"));
  CHECK(alone.arrows.size() > 0);
  CHECK(alone.arrows.size() % kSteps == 0);
  CHECK(trace.arrows.size() == alone.arrows.size() + alone.arrows.size() / kSteps);
}

TEST_CASE("every policy of replicas does too") { check_cases(work_folder("policies_whole"), cases_of_whole()); }
