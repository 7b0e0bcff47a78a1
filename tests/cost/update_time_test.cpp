// What an optimizer step is priced at, and that closed forms and bounds count it.

#include "cost/update_time.h"

#include <doctest/doctest.h>

#include "cost/iteration_time.h"
#include "cost/lower_bound.h"
#include "tests/support/plan_graphs.h"
#include "wire/optimizers.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::StageId;

namespace {

constexpr double kBandwidth = 1000, kRate = 50;

ir::Cluster devices(int count) {
  ir::Cluster cluster = ir::equal_devices(count);
  for (ir::Device& device : cluster.devices) {
    device.memory_bandwidth = BytesPerSecond(kBandwidth);
    device.compute = FlopsPerSecond(kRate);
  }
  return cluster;
}

/// A row of nodes of 1 s per sample and pass, with so many bytes of weights each, a stage each.
ir::PlanGraph row_of(std::vector<int64_t> weight_bytes, Samples batch) {
  ir::PlanGraph graph = tests::chain_graph(static_cast<int>(weight_bytes.size()), {.seconds = 1}, batch);
  graph.weight_groups = {};
  for (const ir::PlanNodeId node : graph.node_ids())
    graph.nodes[node].weights = {graph.weight_groups.push_back({.bytes = Bytes(weight_bytes[node.index()])})};
  return graph;
}

ir::StageGraph one_stage_each(const ir::PlanGraph& graph, Samples micro_batch, size_t replicas = 1) {
  ir::Assignment assignment;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    assignment.stage_of.push_back(StageId(i));
    ir::StageChoice choice{.micro_batch = micro_batch};
    for (size_t r = 0; r < replicas; ++r) choice.devices.emplace_back(replicas * i + r);
    assignment.choice.push_back(std::move(choice));
  }
  return *build_stage_graph(graph, assignment);
}

}  // namespace

TEST_CASE("an update is what passes over memory and the products of matrices, unless it was measured") {
  const UpdateWork work{.tensors = 3, .bytes = 4000, .traffic = 28'000, .flops = 100};
  ir::Cluster cluster = devices(1);
  CHECK(update_time(work, cluster, ir::DeviceId(0u)).count == doctest::Approx(28'000 / kBandwidth + 100 / kRate));
  cluster.runtime.update_tensor = Seconds(2);
  cluster.runtime.update_byte = 0.5;
  CHECK(update_time(work, cluster, ir::DeviceId(0u)).count == doctest::Approx(3 * 2 + 4000 * 0.5));
  cluster.runtime.products_apart = true;
  CHECK(update_time(work, cluster, ir::DeviceId(0u)).count == doctest::Approx(3 * 2 + 4000 * 0.5 + 100 / kRate));
}

TEST_CASE("a replicated stage waits for its slowest memory, and passes over whole tables") {
  ir::PlanGraph graph = row_of({4000}, Samples(4));
  graph.weight_groups.begin()->row_bytes = Bytes(10);
  ir::Cluster cluster = devices(2);
  cluster.devices[ir::DeviceId(1u)].memory_bandwidth = BytesPerSecond(kBandwidth / 2);
  // Rows of four samples, read and written twice.
  CHECK(update_time(one_stage_each(graph, Samples(4)), cluster, StageId(0u)).count ==
        doctest::Approx(3 * 2 * 10 * 4 / kBandwidth));
  CHECK(update_time(one_stage_each(graph, Samples(4), 2), cluster, StageId(0u)).count ==
        doctest::Approx(3 * 4000 / (kBandwidth / 2)));
  ir::StageGraph sharded = one_stage_each(graph, Samples(4), 2);
  sharded.stages[StageId(0u)].choice.shard_optimizer_state = true;
  CHECK(update_time(sharded, cluster, StageId(0u)).count == doctest::Approx(3 * 2000 / (kBandwidth / 2)));
  CHECK(update_work(sharded.stages[StageId(0u)]).tensors == 1);  // a part of each
  const ir::StageGraph kept = one_stage_each(graph, Samples(4), 2);
  CHECK(exchange_time(cluster, sharded.stages[StageId(0u)]).count ==
        doctest::Approx(1.5 * exchange_time(cluster, kept.stages[StageId(0u)]).count));
  CHECK(exchange_time(cluster, kept.stages[StageId(0u)]).count > 0);
  graph.weight_groups.begin()->trainable = false;
  CHECK(update_time(one_stage_each(graph, Samples(4)), cluster, StageId(0u)).count == 0);
}

TEST_CASE(
    "the closed form ends with the updates that the drain does not hide, and a plan's bound has those of a device") {
  // The first stage finishes last: its update is not hidden, that of the second is, up to 3 s of backwards.
  for (const auto& [first, second, update] : {std::tuple{1000, 0, 3.0}, {0, 500, 0.0}, {0, 2000, 4.0}}) {
    const ir::PlanGraph graph = row_of({first, second}, Samples(1));
    const ir::StageGraph plan = one_stage_each(graph, Samples(1));
    ir::Cluster cluster = devices(2);
    cluster.levels.back() = {.group = 2, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e18)};
    CAPTURE(second);
    const IterationTime time = iteration_time(plan, cluster);
    CHECK(time.total() == doctest::Approx(6 + update));
    CHECK(step_bound(plan, cluster).total() <= time.total() * (1 + 1e-12));
  }
  const ir::StageGraph alone = one_stage_each(row_of({1000}, Samples(2)), Samples(2));
  CHECK(step_bound(alone, devices(1)).total() == doctest::Approx(3 * 2 + 3));
  CHECK(stage_cost(alone, devices(1), StageId(0u)).update == doctest::Approx(3));
}

TEST_CASE("an optimizer that multiplies matrices pays for them, whichever axis is longer; others do not") {
  const wire::OptimizerEntry& muon = wire::optimizer_named("muon");
  // Five times X X^T of 2 x 3, its square, and the product with X.
  CHECK(wire::update_flops(muon, 2, 3) == 5 * (2 * 2 * 2 * 3 + 2 * 2 * 2 * 2 + 2 * 2 * 2 * 3));
  CHECK(wire::update_flops(muon, 3, 2) == wire::update_flops(muon, 2, 3));
  for (const wire::OptimizerEntry& optimizer : wire::optimizers()) {
    CAPTURE(optimizer.name);
    // The weight and its gradient are read, the weight is written, and all state is read and written.
    for (const double passes : {optimizer.passes.table, optimizer.passes.matrix, optimizer.passes.other})
      CHECK(passes >= 3);
    if (!optimizer.orthogonalises) CHECK(wire::update_flops(optimizer, 100, 100) == 0);
    if (optimizer.normalises && !optimizer.updates_rows)
      CHECK(optimizer.passes.other >= 3 + 2 * optimizer.state_per_weight_byte);
  }
}
