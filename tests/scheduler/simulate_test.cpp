#include "scheduler/simulate/simulate.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <utility>

#include "scheduler/validate/check_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

TEST_CASE("transfers of one link follow each other, those of different links do not wait") {
  // Two producers on devices 0 and 1 send 4 s worth of bytes each to a consumer on device 2.
  std::vector<StandaloneStage> stages(3);
  for (size_t s = 0; s < 3; ++s) {
    stages[s].forward = ir::SampleFunction::polynomial(1, 0);
    stages[s].choice.devices = {ir::DeviceId(s)};
  }
  stages[2].predecessors = {StageId(0), StageId(1)};
  StageGraph graph = standalone_graph(stages, Samples(1));
  for (ir::Stage& stage : graph.stages) stage.has_backward = false;
  for (ir::StageEdge& edge : graph.edges) {
    edge.gradient_bytes = {};
    edge.bytes = ir::SampleFunction::polynomial(0, 4);
  }
  ir::Cluster cluster = standalone_cluster(3);
  cluster.levels[0].bandwidth = BytesPerSecond(1);
  const auto makespan = [&] {
    const Schedule compute = *order_gpipe({.graph = graph, .cluster = cluster});
    return units(
        simulate(graph, cluster, *insert_transfers(graph, compute), {.ticks_per_second = kTicksPerUnit})->makespan);
  };
  CHECK(makespan() == 6);
  // On one host, device 2 on another: both use the uplink between the hosts.
  cluster.levels = {{.group = 2, .bandwidth = BytesPerSecond(100)}, {.group = 4, .bandwidth = BytesPerSecond(1)}};
  CHECK(makespan() == 10);
}

TEST_CASE("a step waits for the reduction of its group, and a norm for all of them") {
  StageGraph graph = chain_stages({.ranks = 1, .micro_batches = 2});
  ir::Stage& stage = graph.stages[StageId(0)];
  stage.choice.devices = {ir::DeviceId(0), ir::DeviceId(1)};
  stage.choice.mode = ir::ReplicaMode::kRoundRobin;
  stage.trainable_weight_bytes = stage.weight_bytes = Bytes(10);
  ir::Cluster cluster = standalone_cluster(2, 1);
  const Schedule compute = *order_gpipe({.graph = graph, .cluster = cluster});
  for (const bool norm : {false, true}) {
    const Schedule schedule = *insert_transfers(graph, compute, {.norm = norm});
    const auto timeline = simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit});
    REQUIRE(timeline.ok());
    // F + B = 3, ring all-reduce over two devices = 2 latencies, the norm as much again.
    CHECK(units(timeline->makespan) == (norm ? 7 : 5));
  }
}

TEST_CASE("the critical path is a chain without gaps that ends at the makespan") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed, {.weights = false});
    const Schedule compute = *order_gpipe({.graph = standalone.graph, .cluster = standalone.cluster});
    const Schedule schedule = *insert_transfers(standalone.graph, compute);
    const Timeline timeline = *simulate(standalone.graph, standalone.cluster, schedule);
    Ticks now;
    for (const ActionPlace place : critical_path(timeline)) {
      const Span span = timeline.spans[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
      CHECK(span.start <= now);
      now = span.end;
    }
    CHECK(now == timeline.makespan);
  }
}

TEST_CASE("hostile schedules are refused, never run") {
  const StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 2});
  const ir::Cluster cluster = standalone_cluster(2);
  for (const char* text :
       {"device 0: 9F[0,1)", "device 0: 0F[0,99)", "device 0: 0F[-1,1)", "device 7: 0F[0,1)", "device 0: 1F[0,1)",
        "device 0: 0r5F[0,1)", "device 0: 0F[0,1) 0SEND_F[0,1)e9p0", "device 0: 0F[0,1) 0SEND_F[0,1)e0p8",
        "device 0: 0B[0,1)", "device 0: 0F[0,1)s3", "slots 2000000000\ndevice 0: 0F[0,1)s3",
        "slots 1 1 1 1\ndevice 0: 0F[0,1)s0", "device 0: 0F[0,1)\ndevice 0: 0F[1,2)",
        "device 0: 0F[0,1) 0SEND_F[0,1)e0p0", "device 0: 0F[1,0)", "device 0: 0F[0,1) 0F[0,1)",
        "device 0: 0REDUCE[0,2)", "device 1: 1F[0,1)"}) {
    CAPTURE(text);
    const auto schedule = ir::parse_schedule(text);
    REQUIRE(schedule.ok());
    CHECK(!simulate(graph, cluster, *schedule).ok());
    CHECK(!check_schedule(graph, cluster, *schedule).ok());
  }
}

TEST_CASE("ring slots over all replicas are bounded, whatever a file says") {
  constexpr size_t kReplicas = 9000;
  StageGraph graph = chain_stages({.ranks = 1, .micro_batches = kReplicas});
  ir::StageChoice& choice = graph.stages[StageId(0u)].choice;
  choice.mode = ir::ReplicaMode::kRoundRobin;
  choice.devices.clear();
  Schedule schedule;
  for (size_t replica = 0; replica < kReplicas; ++replica) {
    choice.devices.push_back(ir::DeviceId(replica));
    Action forward;
    forward.op = ActionOp::kForward;
    forward.stage = 0;
    forward.replica = static_cast<int32_t>(replica);
    forward.range = {static_cast<int64_t>(replica), static_cast<int64_t>(replica) + 1};
    schedule.programs.push_back({ir::DeviceId(replica), {forward}});
  }
  schedule.slots = IdMap<StageId, int>(1, static_cast<int>(kReplicas));
  const auto refused = simulate(graph, standalone_cluster(kReplicas), schedule);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().front().message.find("ring slots over all replicas") != std::string::npos);
}

TEST_CASE("what running costs lengthens actions, keeps both ends of a message busy, and delays the step") {
  const StageGraph graph =
      chain_stages({.ranks = 2, .micro_batches = 1, .forward = 1, .input_gradient = 0.5, .weight_gradient = 0.5});
  ir::Cluster cluster = standalone_cluster(2, 0);
  const auto compute = find_policy("kfkb")->order({.graph = graph, .cluster = cluster});
  REQUIRE(compute.ok());
  const Result<Schedule> schedule = insert_transfers(graph, *compute);
  REQUIRE(schedule.ok());
  const auto makespan = [&] {
    return simulate(graph, cluster, *schedule, {.ticks_per_second = kTicksPerUnit})->makespan;
  };
  CHECK(makespan() == Ticks(4'000'000));
  cluster.runtime = {.step = Seconds(1), .action = Seconds(0.25), .message = Seconds(0.125)};
  // Step, then F, send, F, B, send, B; the receives are posted while their devices wait anyway.
  CHECK(makespan() == Ticks(1'000'000 + 4'000'000 + 4 * 250'000 + 2 * 125'000));
}

TEST_CASE("reductions over the same links take turns, those over different links do not wait") {
  const Policy* chimera = find_policy("chimera");
  StageGraph graph = standalone_for(*chimera, 4, 8);
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(8);
  ir::Cluster cluster = standalone_cluster(4, 100);
  const Schedule schedule = *insert_transfers(graph, *chimera->order({.graph = graph, .cluster = cluster}));
  const auto timeline = simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit});
  REQUIRE(timeline.ok());
  const auto length = [&](StageId stage) {
    const double seconds = all_reduce_time(cluster, graph.stages[stage].choice.devices, Bytes(8)).count;
    CHECK(seconds >= 200);  // longer than a device needs between the ends of its two stages
    return Ticks(static_cast<int64_t>(seconds * kTicksPerUnit));
  };
  std::map<int32_t, Ticks> ends;  // by stage
  for (size_t p = 0; p < schedule.programs.size(); ++p)
    for (size_t i = 0; i < schedule.programs[p].actions.size(); ++i) {
      const Action& action = schedule.programs[p].actions[i];
      if (action.op == ActionOp::kReduceGradient) ends[action.stage] = timeline->spans[p][i].end;
    }
  // Stages 0 and 3 lie on devices 0 and 3, stages 1 and 2 on devices 1 and 2.
  for (const auto& [first, second] : {std::pair(3, 0), {2, 1}}) {
    CHECK(ends[second] >= ends[first] + length(StageId(static_cast<size_t>(second))));
    CHECK(timeline->makespan >= ends[second]);
  }
  CHECK(ends[2] < ends[3] + length(StageId(2u)));
}

TEST_CASE("what the lowering knows of a schedule changes nothing but the time that its simulation takes") {
  for (const Policy& policy : all_policies())
    for (uint64_t seed = 0; seed < 60; ++seed) {
      if (policy.shape != StageShape::kAny || policy.tries_others) continue;
      CAPTURE(policy.name);
      CAPTURE(seed);
      StandaloneCase random = random_stages(seed);
      random.cluster.runtime = {.step = Seconds(1), .message = Seconds(0.125), .message_byte = 0.01};
      const auto compute = policy.order({.graph = random.graph, .cluster = random.cluster});
      if (!compute.ok()) continue;
      const auto lowered = lower_transfers(random.graph, *compute);
      if (!lowered.ok()) continue;
      const SimulateOptions options{.ticks_per_second = kTicksPerUnit};
      const auto checked = simulate(random.graph, random.cluster, lowered->schedule, options);
      const auto known = simulate(random.graph, random.cluster, *lowered, options);
      REQUIRE(checked.ok());
      REQUIRE(known.ok());
      CHECK(known->spans == checked->spans);
      CHECK(known->makespan == checked->makespan);
      const auto shorter = lower_transfers(random.graph, *compute, {.only_what_takes_time = true});
      REQUIRE(shorter.ok());
      const auto makespan = simulated_makespan(random.graph, random.cluster, *shorter, options);
      REQUIRE(makespan.ok());
      CHECK(*makespan == checked->makespan);
    }
}
