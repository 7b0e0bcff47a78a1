#include "scheduler/validate/check_schedule.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "cost/lower_bound.h"
#include "scheduler/build_schedule.h"
#include "scheduler/memory/memory.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

IdMap<StageId, Samples> one_each(const StageGraph& graph) {
  return IdMap<StageId, Samples>(graph.stages.size(), Samples(1));
}

Result<Schedule> lowered(const StandaloneCase& standalone, bool gpipe) {
  const PolicyRequest request{
      .graph = standalone.graph, .cluster = standalone.cluster, .in_flight = one_each(standalone.graph)};
  GP_TRY(Schedule compute, gpipe ? order_gpipe(request) : order_kfkb(request));
  return insert_transfers(standalone.graph, std::move(compute));
}

std::string first_message(const Status& status) { return status.ok() ? "" : status.problems().front().message; }

StandaloneCase chain(int ranks, int64_t micro_batches) {
  return {chain_stages({.ranks = ranks, .micro_batches = micro_batches}), standalone_cluster(ranks)};
}

}  // namespace

TEST_CASE("what the lowering makes of any stage graph passes the check and runs, buffered and under rendezvous") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed);
    for (const bool gpipe : {false, true}) {
      const Result<Schedule> schedule = lowered(standalone, gpipe);
      REQUIRE(schedule.ok());
      const Status status = check_schedule(standalone.graph, standalone.cluster, *schedule);
      INFO(first_message(status));
      REQUIRE(status.ok());
      const auto buffered = simulate(standalone.graph, standalone.cluster, *schedule);
      const auto rendezvous = simulate(standalone.graph, standalone.cluster, *schedule, {.rendezvous = true});
      REQUIRE(buffered.ok());
      REQUIRE(rendezvous.ok());
      CHECK(buffered->makespan <= rendezvous->makespan);
    }
  }
}

TEST_CASE("the lower bound takes a last micro-batch that is smaller for what it needs of its producer") {
  // After the reader's last item, of one sample, one producer's backward is left: not three, as of a whole item.
  const auto per_sample = [](double fixed, double slope) { return ir::SampleFunction::polynomial(fixed, slope); };
  StandaloneStage producer{.predecessors = {},
                           .forward = per_sample(0, 0.35),
                           .input_gradient = per_sample(0, 0.25),
                           .weight_gradient = per_sample(0, 0.25),
                           .choice = {.devices = {ir::DeviceId(0)}, .micro_batch = Samples(1)}};
  StandaloneStage reader{.predecessors = {StageId(0)},
                         .forward = per_sample(0.1, 1.5),
                         .input_gradient = per_sample(0, 1.5),
                         .weight_gradient = per_sample(0, 1.5),
                         .choice = {.devices = {ir::DeviceId(1)}, .micro_batch = Samples(3)}};
  const StageGraph graph = standalone_graph({producer, reader}, Samples(4));
  const ir::Cluster cluster = standalone_cluster(2);
  const auto built =
      build_schedule(graph, cluster, {.policy = "kfkb", .simulation = {.ticks_per_second = kTicksPerUnit}});
  REQUIRE(built.ok());
  CHECK(units(built->timeline.makespan) == doctest::Approx(19.75));
  CHECK(cost::step_bound(graph, cluster).total() <= 19.75);
}

TEST_CASE("no schedule of any stage graph is shorter than its lower bound, nor longer than all work in a row") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed, {.weights = false});
    const double bound = cost::step_bound(standalone.graph, standalone.cluster).total();
    for (const std::string policy : {"kfkb", "gpipe", "1f1b", "none"}) {
      CAPTURE(policy);
      const auto built = build_schedule(standalone.graph, standalone.cluster,
                                        {.policy = policy, .simulation = {.ticks_per_second = kTicksPerUnit}});
      REQUIRE(built.ok());
      CHECK(bound <= units(built->timeline.makespan) + 1e-3);
      Ticks serial;
      for (const auto& spans : built->timeline.spans)
        for (const Span span : spans) serial += span.end - span.start;
      CHECK(built->timeline.makespan <= serial);
    }
  }
}

TEST_CASE("a mutated schedule passes the check exactly where it runs under both transports with all work done") {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed % 200, {.max_stages = 4});
    const Result<Schedule> good = lowered(standalone, seed % 2 == 0);
    REQUIRE(good.ok());
    Schedule schedule = *good;
    std::mt19937_64 random(seed);
    auto& list = schedule.programs[random() % schedule.programs.size()].actions;
    if (list.size() < 2) continue;
    const uint64_t kind = random() % 4;
    // The simulator runs what it is given: it does not know what is missing.
    bool complete = true;
    if (kind == 0) {  // swaps two neighbours
      const size_t at = random() % (list.size() - 1);
      std::swap(list[at], list[at + 1]);
    } else if (kind == 1) {  // swaps any two
      std::swap(list[random() % list.size()], list[random() % list.size()]);
    } else if (kind == 2) {  // drops one action
      const auto dropped = list.begin() + static_cast<ptrdiff_t>(random() % list.size());
      // Only who calls a step synchronous needs its flush.
      complete = dropped->op == ActionOp::kFlush;
      list.erase(dropped);
    } else {  // reverses one device's messages
      std::vector<size_t> messages;
      for (size_t i = 0; i < list.size(); ++i)
        if (ir::is_send(list[i].op) || ir::is_receive(list[i].op)) messages.push_back(i);
      for (size_t i = 0; i < messages.size() / 2; ++i)
        std::swap(list[messages[i]], list[messages[messages.size() - 1 - i]]);
    }
    const Status status = check_schedule(standalone.graph, standalone.cluster, schedule);
    const auto buffered = simulate(standalone.graph, standalone.cluster, schedule);
    const auto rendezvous = simulate(standalone.graph, standalone.cluster, schedule, {.rendezvous = true});
    const bool runs = buffered.ok() && rendezvous.ok() && complete;
    if (status.ok() != runs) {
      INFO(ir::print_schedule(schedule));
      INFO(first_message(status));
      INFO((buffered.ok() ? "" : buffered.problems().front().message));
      INFO((rendezvous.ok() ? "" : rendezvous.problems().front().message));
      FAIL_CHECK("the check and the simulator disagree");
    }
    ++(status.ok() ? accepted : refused);
  }
  MESSAGE(accepted << " mutants accepted, " << refused << " refused");
  CHECK(accepted > 300);
  CHECK(refused > 1000);
}

TEST_CASE("replicas that exchange sums come to their stages in one order, or wait for ever") {
  std::vector<scheduler::StandaloneStage> stages(2);
  for (scheduler::StandaloneStage& stage : stages)
    stage.choice = {.devices = {ir::DeviceId(0u), ir::DeviceId(1u)}, .micro_batch = Samples(2)};
  StandaloneCase standalone{standalone_graph(stages, Samples(4)), standalone_cluster(2)};
  const Schedule one_order = *lowered(standalone, true);
  Schedule two_orders = one_order;
  // The second device runs the other stage first.
  std::vector<Action>& actions = two_orders.programs[1].actions;
  std::rotate(actions.begin(), actions.begin() + std::ssize(actions) / 2, actions.end());
  const auto problem = [&](const Schedule& schedule) {
    return first_message(check_schedule(standalone.graph, standalone.cluster, schedule));
  };
  INFO(ir::print_schedule(two_orders));
  CHECK(problem(one_order).empty());
  CHECK(problem(two_orders).empty());
  for (ir::Stage& stage : standalone.graph.stages) stage.exchanges_sums = true;
  CHECK(problem(one_order).empty());
  CHECK(problem(two_orders).find("waits forever") != std::string::npos);
}

TEST_CASE("the message names the first offending action") {
  const StandaloneCase standalone = chain(2, 2);
  const Schedule good = *lowered(standalone, false);
  REQUIRE(check_schedule(standalone.graph, standalone.cluster, good).ok());
  const auto refused = [&](auto&& change) {
    Schedule schedule = good;
    change(schedule);
    return first_message(check_schedule(standalone.graph, standalone.cluster, schedule));
  };
  using Rows = std::vector<Action>;
  const auto find = [](Rows& rows, const char* text) {
    return std::find(rows.begin(), rows.end(), *ir::parse_action(text));
  };
  INFO(ir::print_schedule(good));
  CHECK(refused([&](Schedule& s) {
          s.programs[1].actions.erase(find(s.programs[1].actions, "1F[0,1)s0"));
        }).find("stage 1 has no forward of sample 0") != std::string::npos);
  CHECK(refused([&](Schedule& s) {
          s.programs[1].actions.erase(find(s.programs[1].actions, "1B[0,1)s0"));
        }).find("device 1, before position 2: 1B[0,1)s0 is missing: stage 1 has no backward of sample 0") !=
        std::string::npos);
  CHECK(refused([&](Schedule& s) {
          s.programs[1].actions.erase(find(s.programs[1].actions, "1RECV_F[0,1)e0p0s0"));
        }).find("device 1, action 3: 1RECV_F[1,2)e0p0s0 meets device 0, action 1: 0SEND_F[0,1)e0p0s0") !=
        std::string::npos);
  CHECK(refused([&](Schedule& s) {
          find(s.programs[0].actions, "0F[0,1)s0")->stage = 7;
        }).find("device 0, action 0: 7F[0,1)s0 names a stage that does not exist") != std::string::npos);
  CHECK(refused([&](Schedule& s) {
          find(s.programs[0].actions, "0B[0,1)s0")->version = 1;
        }).find("another weight version") != std::string::npos);
}

TEST_CASE("memory that does not fit is refused with the shortfall") {
  StandaloneCase standalone = chain(2, 4);
  for (ir::Stage& stage : standalone.graph.stages)
    stage.stash_to_input_gradient = ir::SampleFunction::polynomial(0, 100);
  const Schedule schedule = *lowered(standalone, true);
  const DeviceMemory memory = memory_of(standalone.graph, schedule, {}).front();
  // Four stashes and four boundary outputs of a byte each, and the first gradient that comes back.
  CHECK(memory.peak == Bytes(405));
  standalone.cluster.devices[ir::DeviceId(0)].memory = memory.peak;
  CHECK(check_schedule(standalone.graph, standalone.cluster, schedule).ok());
  standalone.cluster.devices[ir::DeviceId(0)].memory = memory.peak - Bytes(1);
  const Status status = check_schedule(standalone.graph, standalone.cluster, schedule);
  REQUIRE(!status.ok());
  CHECK(status.problems().front().code == Code::kNoFeasiblePlan);
  CHECK(first_message(status).find("1 too many") != std::string::npos);
  // Micro-batches of one sample cannot be smaller.
  CHECK(status.problems().front().hint == "use recomputation, fewer samples in flight, or more devices");
  for (ir::Stage& stage : standalone.graph.stages) stage.choice.recompute = true;
  standalone.cluster.devices[ir::DeviceId(0)].memory = Bytes(1);
  const Status recomputing = check_schedule(standalone.graph, standalone.cluster, *lowered(standalone, true));
  REQUIRE(!recomputing.ok());
  CHECK(recomputing.problems().front().hint == "use fewer samples in flight, or more devices");
}

TEST_CASE("a boundary value that the stash holds anyway counts once") {
  StandaloneCase standalone = chain(2, 1);
  for (ir::Stage& stage : standalone.graph.stages)
    stage.stash_to_input_gradient = ir::SampleFunction::polynomial(0, 100);
  const Schedule schedule = *lowered(standalone, true);
  // The input, the stash, and the gradient that goes back.
  CHECK(memory_of(standalone.graph, schedule, {})[1].peak == Bytes(102));
  standalone.graph.edges[ir::EdgeId(0)].stashed_below = true;
  CHECK(memory_of(standalone.graph, schedule, {})[1].peak == Bytes(101));
}

TEST_CASE("every step returns each device to what it held at its start, and holds no more than its peak between") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed);
    const Schedule schedule = *lowered(standalone, false);
    const auto timeline = simulate(standalone.graph, standalone.cluster, schedule);
    REQUIRE(timeline.ok());
    const auto memory = memory_of(standalone.graph, schedule, {});
    for (size_t p = 0; p < memory.size(); ++p) {
      const auto points = memory_over_time(memory[p], schedule.programs[p], timeline->spans[p]);
      CHECK(points.back().bytes == memory[p].fixed);
      for (const MemoryPoint& point : points) CHECK(point.bytes >= memory[p].fixed);
      const Bytes max_bytes = std::ranges::max(points, {}, &MemoryPoint::bytes).bytes;
      CHECK(max_bytes <= memory[p].peak);
      if (schedule.programs[p].actions.empty()) continue;
      const size_t at_peak = memory[p].peak_position;
      const Span span = timeline->spans[p][at_peak];
      if (ir::is_compute(schedule.programs[p].actions[at_peak].op) && span.end > span.start)
        CHECK(max_bytes == memory[p].peak);
    }
  }
}
