#include "scheduler/render/gantt.h"

#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "ir/device_names.h"
#include "scheduler/build_schedule.h"
#include "scheduler/render/device_groups.h"
#include "support/trace_events.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Example {
  StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 3});
  ir::Cluster cluster = standalone_cluster(2);
  BuiltSchedule built = *build_schedule(
      graph, cluster,
      {.policy = "kfkb", .in_flight = depth_numbers(graph), .simulation = {.ticks_per_second = kTicksPerUnit}});
};

// Three stages, each with so many replicas that share every micro-batch.
StageGraph replicated_chain(int replicas) {
  std::vector<StandaloneStage> stages(3);
  for (uint32_t s = 0; s < stages.size(); ++s) {
    if (s > 0) stages[s].predecessors = {StageId(s - 1)};
    stages[s].forward = stages[s].input_gradient = stages[s].weight_gradient = ir::SampleFunction::polynomial(0, 1);
    stages[s].choice.micro_batch = Samples(replicas);
    for (int r = 0; r < replicas; ++r)
      stages[s].choice.devices.push_back(ir::DeviceId(s * static_cast<uint32_t>(replicas) + static_cast<uint32_t>(r)));
  }
  StageGraph graph = standalone_graph(stages, Samples(replicas * 4));
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1000);
  return graph;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the terminal picture shows each device's actions to scale") {
  const Example example;
  // 12 units of time on 24 columns.
  CHECK(gantt_text(example.graph, example.built.schedule, example.built.timeline, {.width = 35}) ==
        "device 0 |F0F1....B0--F2B1--..B2--|\n"
        "device 1 |..F0B0--F1B1--F2B2--....|\n"
        "makespan 12000000 ticks, devices idle 25.0 % of it\n");
}

TEST_CASE("no line of the terminal picture is wider than asked, and cut labels lose their number") {
  const Example example;
  for (const int width : {20, 24, 50, 200}) {
    std::istringstream lines(
        gantt_text(example.graph, example.built.schedule, example.built.timeline, {.width = width}));
    std::string line;
    std::getline(lines, line);
    CHECK(line.size() == static_cast<size_t>(width));
  }
  const std::string colored =
      gantt_text(example.graph, example.built.schedule, example.built.timeline, {.width = 40, .color = true});
  CHECK(count(colored, "\x1b[0m") >= 2);
}

TEST_CASE("a device with several stages names them in its cells") {
  const StageGraph graph = chain_stages({.ranks = 1, .chunks = 2, .micro_batches = 1});
  const ir::Cluster cluster = standalone_cluster(1);
  const BuiltSchedule built = *build_schedule(graph, cluster, {.policy = "gpipe"});
  const std::string text = gantt_text(graph, built.schedule, built.timeline, {.width = 60});
  CHECK(text.find("0F0") != std::string::npos);
  CHECK(text.find("1B0") != std::string::npos);
}

TEST_CASE("the SVG has one bar per compute action, the trace one arrow per message") {
  const Example example;
  const std::string svg = gantt_svg(example.graph, example.built.schedule, example.built.timeline);
  CHECK(count(svg, "<g><title>") == 12);
  CHECK(count(svg, "stroke=\"#555\"") == 6);
  CHECK(count(svg, ">forward</text>") == 1);
  CHECK(count(svg, "stroke=\"#ddd\"") >= 4);  // lines of the axis
  const auto trace = nlohmann::json::parse(
      trace_json(example.graph, example.built.schedule, example.built.timeline, example.built.memory));
  size_t starts = 0, ends = 0, spans = 0, counters = 0;
  for (const auto& event : trace.at("traceEvents")) {
    starts += event.at("ph") == "s";
    ends += event.at("ph") == "f";
    spans += event.at("ph") == "X";
    counters += event.at("ph") == "C";
  }
  CHECK(starts == 6);
  CHECK(ends == 6);
  CHECK(spans == 24);
  CHECK(counters > 0);
}

TEST_CASE("the SVG of more devices than rows shows shares, and stays small") {
  const StageGraph graph = chain_stages({.ranks = 200, .micro_batches = 100});
  const BuiltSchedule built =
      *build_schedule(graph, standalone_cluster(200), {.policy = "1f1b", .in_flight = depth_numbers(graph)});
  const std::string svg = gantt_svg(graph, built.schedule, built.timeline);
  CHECK(svg.find(">devices 0 to 3</text>") != std::string::npos);
  CHECK(count(svg, "<g><title>") == 0);
  CHECK(svg.size() < 2'000'000);
}

TEST_CASE("of many devices those that do the same have one row, with their stage and its sum over replicas") {
  for (const int replicas : {2, 8}) {
    CAPTURE(replicas);
    const StageGraph graph = replicated_chain(replicas);
    ir::Cluster cluster = standalone_cluster(3 * replicas);
    cluster.levels.front().bandwidth = BytesPerSecond(1000);  // so that sums take time
    const BuiltSchedule built = *build_schedule(graph, cluster, {.policy = "gpipe"});
    const std::vector<DeviceGroup> groups = device_groups(graph, built.schedule, built.timeline);
    CHECK(groups.size() == (replicas == 2 ? 6 : 3));
    CHECK(device_names(built.schedule, groups.back()) == (replicas == 2 ? "device 5" : "devices 16 to 23"));
    const StageNames names{HtmlText::encode(ModelText("a<b>")), HtmlText::encode(ModelText("c")),
                           HtmlText::encode(ModelText("d"))};
    const std::string svg = gantt_svg(graph, built.schedule, built.timeline, {}, names);
    CHECK(count(svg, ">stage 0: a&lt;b&gt;</text>") == groups.size() / 3);
    CHECK(count(svg, ", gradient sum, ") == groups.size());
    CHECK(count(svg, ", forward, ") == 4 * groups.size());
  }
}

TEST_CASE("replicas that take turns at the same times have one row; those of other times do not") {
  for (const int stages : {1, 2}) {
    CAPTURE(stages);
    StageGraph graph = chain_stages({.ranks = stages, .micro_batches = 40});
    for (const StageId id : graph.stage_ids()) {
      ir::StageChoice& choice = graph.stages[id].choice;
      choice.mode = ir::ReplicaMode::kRoundRobin;
      choice.devices.clear();
      for (size_t r = 0; r < 20; ++r) choice.devices.push_back(ir::DeviceId(id.index() * 20 + r));
    }
    const BuiltSchedule built = *build_schedule(graph, standalone_cluster(20 * stages), {.policy = "gpipe"});
    const std::vector<DeviceGroup> groups = device_groups(graph, built.schedule, built.timeline);
    std::set<std::pair<int32_t, int64_t>> first_starts;  // of which stage, when
    for (size_t p = 0; p < built.schedule.programs.size(); ++p)
      for (size_t i = 0; i < built.schedule.programs[p].actions.size(); ++i)
        if (const Action& action = built.schedule.programs[p].actions[i]; action.op == ActionOp::kForward) {
          first_starts.insert({action.stage, built.timeline.spans[p][i].start.count});
          break;
        }
    CHECK(groups.size() >= first_starts.size());
    if (stages == 1) CHECK(device_names(built.schedule, groups.front()) == "devices 0 to 19");
    const std::string text = gantt_text(graph, built.schedule, built.timeline, {.metrics = false});
    CHECK(count(text, "\n") == groups.size());
    size_t programs = 0;
    for (const DeviceGroup& group : groups) programs += group.programs.size();
    CHECK(programs == built.schedule.programs.size());
  }
}

TEST_CASE("the axis of real times has short numbers") {
  for (const double seconds : {3e-6, 7e-4, 0.02, 5.0, 426.0}) {
    const TimeAxis axis = axis_of_seconds(Ticks(static_cast<int64_t>(seconds * kTicksPerSecond)));
    const double shown = seconds * kTicksPerSecond / axis.ticks_per_unit;
    CHECK(shown >= 1);
    CHECK(shown < 1000);
  }
  CHECK(axis_of_seconds(Ticks(426'000'000'000)).unit == " s");
}

TEST_CASE("devices are named as one reads them") {
  CHECK(ir::device_names({7}) == "device 7");
  CHECK(ir::device_names({3, 4}) == "devices 3, 4");
  CHECK(ir::device_names({3, 4, 5}) == "devices 3 to 5");
  CHECK(ir::device_names({0, 2, 4, 6, 8}) == "devices 0, 2, 4 and 2 more");
}

TEST_CASE("where a device has several stages a bar says which") {
  const StageGraph graph = chain_stages({.ranks = 1, .chunks = 2, .micro_batches = 1});
  const BuiltSchedule built = *build_schedule(graph, standalone_cluster(1), {.policy = "gpipe"});
  const std::string svg = gantt_svg(graph, built.schedule, built.timeline);
  CHECK(svg.find(">stages 0, 1</text>") != std::string::npos);
  CHECK(svg.find(">1:0</text>") != std::string::npos);
}

TEST_CASE("two traces become one file; what is no trace has no events") {
  const Example example;
  const std::string trace = trace_json(example.graph, example.built.schedule, example.built.timeline, {});
  const auto joined = nlohmann::json::parse(graphpipe::join_trace_files(trace, trace));
  CHECK(joined.at("traceEvents").size() == 2 * nlohmann::json::parse(trace).at("traceEvents").size());
  CHECK(graphpipe::events_of_trace_file("{\"traceEvents\":[]}").empty());
  CHECK(graphpipe::events_of_trace_file("").empty());
}
