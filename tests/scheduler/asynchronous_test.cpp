// Schedules whose weights change inside the step: PipeDream, 1F1B-RR, 2BW, the parameter server; and those without a
// pipeline or without a backward.

#include <doctest/doctest.h>

#include <numeric>

#include "scheduler/build_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using nlohmann::json;

namespace {

/// A chain with given replicas per stage that take turns; every stage has weights.
StageGraph turns_stages(const std::vector<int>& replicas, int64_t micro_batches) {
  StageGraph graph = chain_stages({.ranks = static_cast<int>(replicas.size()), .micro_batches = micro_batches});
  size_t device = 0;
  for (const StageId stage : graph.stage_ids()) {
    ir::Stage& s = graph.stages[stage];
    s.trainable_weight_bytes = s.weight_bytes = Bytes(8);
    s.choice.mode = ir::ReplicaMode::kRoundRobin;
    s.choice.devices.clear();
    for (int r = 0; r < replicas[stage.index()]; ++r) s.choice.devices.push_back(ir::DeviceId(device++));
  }
  return graph;
}

int device_count(const StageGraph& graph) {
  int count = 0;
  for (const ir::Stage& stage : graph.stages) count += static_cast<int>(stage.choice.devices.size());
  return count;
}

/// Orders, lowers, checks and simulates; fails the test where any of it refuses.
Schedule built(const StageGraph& graph, const ir::Cluster& cluster, const PolicyRequest& request,
               const std::string& policy) {
  const auto compute = find_policy(policy)->order(request);
  if (!compute.ok()) FAIL(compute.problems().front().message);
  const auto schedule = insert_transfers(graph, *compute);
  if (!schedule.ok()) FAIL(schedule.problems().front().message);
  const Status verdict = check_schedule(graph, cluster, *schedule);
  if (!verdict.ok()) FAIL(verdict.problems().front().message);
  for (const bool rendezvous : {false, true}) {
    const auto timeline = simulate(graph, cluster, *schedule, {.rendezvous = rendezvous});
    if (!timeline.ok()) FAIL(timeline.problems().front().message);
  }
  return *schedule;
}

/// Per sample the version that its actions read, which must be one.
std::vector<int> versions_of(const StageGraph& graph, const Schedule& schedule, StageId stage) {
  std::vector<int> versions(static_cast<size_t>(graph.batch.count), -1);
  for (const ir::Program& program : schedule.programs)
    for (const Action& a : program.actions) {
      if (!ir::is_compute(a.op) || a.stage != static_cast<int32_t>(stage.index())) continue;
      for (int64_t sample = a.range.first; sample < a.range.last; ++sample) {
        int& version = versions[static_cast<size_t>(sample)];
        CHECK((version == -1 || version == a.version));
        version = a.version;
      }
    }
  return versions;
}

/// By stage the most weight versions that one of its replicas holds at once.
std::vector<int> live_versions(const StageGraph& graph, const Schedule& schedule) {
  std::vector<int> live(graph.stages.size(), 1);
  for (const ir::Program& program : schedule.programs) {
    const std::vector<int> held = ir::held_versions(program);
    for (size_t i = 0; i < held.size(); ++i) {
      int& count = live[static_cast<size_t>(program.actions[i].stage)];
      count = std::max(count, held[i]);
    }
  }
  return live;
}

}  // namespace

TEST_CASE("pipedream and 2bw use the weight versions of the recorded tables, with as many alive") {
  const auto tables = read_json("derived/weight_versions.json");
  for (const auto& [name, table] : tables.items()) {
    CAPTURE(name);
    const std::vector<int> ones(table.at("stages").get<size_t>(), 1);
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(ones.size()));
    if (table.contains("modes")) {
      const StageGraph graph = turns_stages(ones, table.at("minibatches").get<int64_t>());
      for (const auto& [mode, expected] : table.at("modes").items()) {
        const bool vertical = mode == "vertical_sync";
        const Schedule schedule = built(
            graph, cluster, {.graph = graph, .cluster = cluster, .choices = {.vertical_sync = vertical}}, "pipedream");
        CHECK(ir::is_asynchronous(schedule));
        for (const StageId stage : graph.stage_ids())
          CHECK(versions_of(graph, schedule, stage) ==
                expected.at("version_used_by_forward_and_backward")[stage.index()].get<std::vector<int>>());
        CHECK(live_versions(graph, schedule) == expected.at("max_live_versions").get<std::vector<int>>());
      }
      continue;
    }
    const int64_t update = table.at("microbatches_per_batch").get<int64_t>();
    const StageGraph graph = turns_stages(ones, update * table.at("batches").get<int64_t>());
    const Schedule schedule =
        built(graph, cluster, {.graph = graph, .cluster = cluster, .choices = {.update = Samples(update)}}, "2bw");
    for (const StageId stage : graph.stage_ids())
      CHECK(versions_of(graph, schedule, stage) == table.at("version_used").get<std::vector<int>>());
    CHECK(live_versions(graph, schedule) == table.at("max_live_versions").get<std::vector<int>>());
  }
}

TEST_CASE("pipedream-rr orders the nine published configurations as their table says") {
  const auto tables = read_json("derived/pipedream_1f1b_rr.json");
  for (const auto& [name, table] : tables.items()) {
    CAPTURE(name);
    const auto replicas = table.at("replicas_per_stage").get<std::vector<int>>();
    StageGraph graph = turns_stages(replicas, table.at("minibatches").get<int64_t>());
    const json map = json::parse(read_schedule("upstream/pipedream/" + name)).at("stage_to_rank_map");
    for (const StageId stage : graph.stage_ids()) {
      std::vector<ir::DeviceId>& devices = graph.stages[stage].choice.devices;
      devices.clear();
      for (const json& rank : map.at(std::to_string(stage.index())))
        devices.push_back(ir::DeviceId(rank.get<size_t>()));
    }
    const ir::Cluster cluster = standalone_cluster(device_count(graph));
    PolicyRequest request{.graph = graph, .cluster = cluster};
    if (table.at("warmup_per_stage") != table.at("warmup_by_formula"))
      for (size_t s = 0; s < replicas.size(); ++s)
        request.in_flight.push_back(Samples((table.at("warmup_per_stage")[s].get<int64_t>() + 1) * replicas[s]));
    const Schedule schedule = built(graph, cluster, request, "pipedream-rr");
    const json& ranks = table.at("per_rank");
    REQUIRE(ranks.size() == schedule.programs.size());
    for (const auto& [rank, tokens] : ranks.items()) {
      std::vector<std::string> list;
      for (const Action& a : schedule.programs[std::stoul(rank)].actions)
        if (ir::is_compute(a.op)) list.push_back(ir::action_name(a.op) + std::to_string(a.range.first));
      CHECK(list == tokens.get<std::vector<std::string>>());
    }
  }
}

TEST_CASE("on any stage graph, no asynchronous schedule reads a version before it is made, and 2bw keeps two") {
  int checked = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    StandaloneCase standalone =
        random_stages(seed, {.replicas = seed % 3 != 0, .shared_devices = seed % 3 != 1, .recompute = seed % 5 == 0});
    standalone.graph.batch = Samples(24);
    for (ir::Stage& stage : standalone.graph.stages) {
      stage.choice.k = 1;
      stage.choice.mode = ir::ReplicaMode::kRoundRobin;
    }
    for (const char* policy : {"pipedream-rr", "2bw"})
      for (const bool vertical : {false, true}) {
        const auto compute = find_policy(policy)->order(
            {.graph = standalone.graph, .cluster = standalone.cluster, .choices = {.vertical_sync = vertical}});
        if (!compute.ok()) continue;
        ++checked;
        const auto schedule = insert_transfers(standalone.graph, *compute);
        if (!schedule.ok()) FAIL(schedule.problems().front().message);
        const Status verdict = check_schedule(standalone.graph, standalone.cluster, *schedule);
        if (!verdict.ok()) FAIL(verdict.problems().front().message);
        CHECK(simulate(standalone.graph, standalone.cluster, *schedule, {.rendezvous = true}).ok());
        const std::vector<int> live = live_versions(standalone.graph, *schedule);
        if (std::string_view(policy) == "2bw")
          for (const int versions : live) CHECK(versions <= 2);
        if (!vertical && std::string_view(policy) == "pipedream-rr") continue;
        // Every sample meets weights of one age in all trained stages.
        std::vector<int> ages;
        for (const StageId stage : standalone.graph.stage_ids()) {
          if (!standalone.graph.stages[stage].is_trained()) continue;
          const std::vector<int> versions = versions_of(standalone.graph, *schedule, stage);
          if (ages.empty()) ages = versions;
          CHECK(versions == ages);
        }
      }
  }
  CHECK(checked > 300);
}

TEST_CASE("a parameter server applies the updates in the order of the micro-batches, all but one worker late") {
  const Policy& policy = *find_policy("parameter-server");
  const StageGraph graph = standalone_for(policy, 3, 9);
  const ir::Cluster cluster = standalone_cluster(3);
  const Schedule schedule = built(graph, cluster, {.graph = graph, .cluster = cluster}, "parameter-server");
  CHECK(versions_of(graph, schedule, StageId(size_t{0})) == std::vector<int>{0, 0, 0, 1, 2, 3, 4, 5, 6});
  for (const ir::Program& program : schedule.programs) {
    int steps = 0;
    for (const Action& a : program.actions)
      if (a.op == ActionOp::kStep) {
        CHECK(a.range == SampleRange{steps, steps + 1});
        CHECK(a.version == ++steps);
      }
    CHECK(steps == 9);
  }
}

TEST_CASE("data parallelism makes one update, inference none") {
  for (const char* name : {"data-parallel", "inference"}) {
    StageGraph graph = standalone_for(*find_policy(name), 4, 8);
    for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1);
    const auto result = build_schedule(graph, standalone_cluster(4), {.policy = name});
    REQUIRE(result.ok());
    CHECK(!ir::is_asynchronous(result->schedule));
    int forwards = 0, backwards = 0, steps = 0;
    for (const ir::Program& program : result->schedule.programs)
      for (const Action& a : program.actions) {
        forwards += a.op == ActionOp::kForward;
        backwards += a.op == ActionOp::kBackward;
        steps += a.op == ActionOp::kStep;
      }
    const bool trains = std::string_view(name) == "data-parallel";
    CHECK(forwards == (trains ? 8 : 32));
    CHECK(backwards == (trains ? 8 : 0));
    CHECK(steps == (trains ? 4 : 0));
  }
}

TEST_CASE("the check names the first row that breaks a rule of versions or updates") {
  const StageGraph graph = turns_stages({1, 1, 1}, 6);
  const ir::Cluster cluster = standalone_cluster(3);
  const Schedule good = built(graph, cluster, {.graph = graph, .cluster = cluster}, "pipedream");
  INFO(ir::print_schedule(good));
  const auto refused = [&](auto change) {
    Schedule bad = good;
    change(bad.programs[0].actions);
    const Status status = check_schedule(graph, cluster, bad);
    REQUIRE(!status.ok());
    return status.problems().front().message;
  };
  using Actions = std::vector<Action>;
  const auto row = [](Actions& actions, ActionOp op, int number) {
    for (auto at = actions.begin(); at != actions.end(); ++at)
      if (at->op == op && number-- == 0) return at;
    FAIL("no such row");
    return actions.end();
  };
  const auto contains = [](const std::string& message, const char* part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  contains(refused([&](Actions& a) { a.erase(row(a, ActionOp::kStep, 0)); }), "publishes a weight version that is not");
  contains(refused([&](Actions& a) { a.erase(row(a, ActionOp::kPublish, 0)); }), "that is not published");
  contains(refused([&](Actions& a) { a.erase(row(a, ActionOp::kFreeVersion, 0)); }),
           "weight version 0 was never freed");
  contains(refused([&](Actions& a) { row(a, ActionOp::kForward, 3)->version = 0; }), "another weight version");
  contains(refused([&](Actions& a) { row(a, ActionOp::kStep, 1)->range = {2, 3}; }), "leaves out samples");
  contains(refused([&](Actions& a) {
             const Action step = *row(a, ActionOp::kStep, 0);
             a.erase(row(a, ActionOp::kStep, 0));
             a.insert(row(a, ActionOp::kBackward, 0), step);
           }),
           "comes after the step of its stage");
  contains(refused([&](Actions& a) { std::swap(*row(a, ActionOp::kStep, 0), *row(a, ActionOp::kStep, 1)); }),
           "does not make the next weight version");
}

TEST_CASE("memory counts the versions that a stage keeps") {
  StageGraph graph = turns_stages({1, 1, 1, 1}, 12);
  const ir::Cluster cluster = standalone_cluster(4);
  const Schedule stashed = built(graph, cluster, {.graph = graph, .cluster = cluster}, "pipedream");
  const auto flushed = build_schedule(graph, cluster, {.policy = "1f1b"});
  REQUIRE(flushed.ok());
  const std::vector<DeviceMemory> memory = memory_of(graph, stashed, {});
  for (size_t rank = 0; rank < 4; ++rank)
    CHECK((memory[rank].peak - flushed->memory[rank].peak).count == 8 * static_cast<int64_t>(3 - rank));
}
