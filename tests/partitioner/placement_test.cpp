#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "partitioner/tarnawski/placement_annealing.h"
#include "partitioner/tarnawski/planner.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

DeviceOfNode random_placement(tests::Dice& dice, const MaxLoadGraph& graph, uint32_t accelerators, uint32_t devices) {
  DeviceOfNode device_of;
  for (const MaxLoadGraph::Node& node : graph.nodes)
    device_of.push_back(node.on_accelerator ? static_cast<uint32_t>(dice.below(devices))
                                            : accelerators + static_cast<uint32_t>(dice.below(devices - accelerators)));
  return device_of;
}

TEST_CASE("loads, overflow and crossings after any moves are those of the placement added up") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const MaxLoadGraph graph = fuse_for_schedules(PricedLayers(tests::random_placement_layers(seed, 12)).prices);
    const MaxLoadOptions options{.accelerators = 3, .cpus = 2, .memory = 20};
    Placement moved(graph, options, random_placement(dice, graph, 3, 5));
    for (int move = 0; move < 200; ++move) {
      const auto node = static_cast<uint32_t>(dice.below(graph.nodes.size()));
      const auto device = static_cast<uint32_t>(dice.below(5));
      if (moved.can_run(node, device)) moved.move(node, device);
    }
    std::vector<double> loads(5, 0), bytes(5, 0);
    int64_t crossings = 0;
    for (uint32_t node = 0; node < graph.nodes.size(); ++node) {
      const bool on_cpu = moved.device_of(node) >= 3;
      loads[moved.device_of(node)] += on_cpu ? graph.nodes[node].cpu : graph.nodes[node].accelerator;
      if (!on_cpu) bytes[moved.device_of(node)] += graph.nodes[node].bytes;
    }
    for (const MaxLoadGraph::Tensor& tensor : graph.tensors) {
      std::set<uint32_t> touching;
      for (const uint32_t node : tensor.nodes) touching.insert(moved.device_of(node));
      crossings += static_cast<int64_t>(touching.size()) - 1;
      if (touching.size() == 1) continue;
      for (const uint32_t device : touching)
        if (device < 3) loads[device] += tensor.seconds;
    }
    double overflow = 0;
    for (const double held : bytes) overflow += std::max(0.0, held - 20) / 20;
    for (size_t device = 0; device < 5; ++device) CHECK(moved.loads()[device] == doctest::Approx(loads[device]));
    CHECK(moved.overflow() == doctest::Approx(overflow));
    CHECK(moved.crossings() == crossings);
  }
}

TEST_CASE("runs hold every node once on its device, in an order of all edges; contiguous placements have one each") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const LayerTable layers = tests::random_placement_layers(seed, 10);
    const MaxLoadGraph graph = fuse_for_schedules(PricedLayers(layers).prices);
    const DeviceOfNode device_of = random_placement(dice, graph, 3, 4);
    std::vector<int> run_of(graph.nodes.size(), -1);
    const std::vector<DeviceRun> runs = runs_of(graph, device_of);
    for (size_t run = 0; run < runs.size(); ++run) {
      CHECK_FALSE(runs[run].nodes.empty());
      if (run > 0) CHECK(runs[run].device != runs[run - 1].device);
      for (const uint32_t node : runs[run].nodes) {
        CHECK(device_of[node] == runs[run].device);
        CHECK(run_of[node] == -1);
        run_of[node] = static_cast<int>(run);
      }
    }
    CHECK(std::ranges::count(run_of, -1) == 0);
    for (const auto& [from, to] : graph.edges) CHECK(run_of[from] <= run_of[to]);

    LayerRequest request{.graph = &layers};
    request.machine.levels = {{.count = 3, .bandwidth = 1}};
    request.machine.cpus = 1;
    const auto contiguous = plan_layers(*find_planner("max-throughput"), request);
    REQUIRE(contiguous.ok());
    std::map<uint32_t, uint32_t> device_of_layer;
    for (const LayerStage& stage : contiguous->plan.stages)
      for (const LayerId layer : stage.layers)
        device_of_layer[static_cast<uint32_t>(layer.index())] = static_cast<uint32_t>(stage.devices.front());
    DeviceOfNode one_run;
    for (const MaxLoadGraph::Node& node : graph.nodes) one_run.push_back(device_of_layer[node.layers.front()]);
    CHECK(runs_of(graph, one_run).size() == contiguous->plan.stages.size());
  }
}

TEST_CASE("fewer crossings never cost load or memory") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const MaxLoadGraph graph = fuse_for_schedules(PricedLayers(tests::random_placement_layers(seed, 14)).prices);
    const MaxLoadOptions options{.accelerators = 3, .cpus = 1, .memory = 60};
    const DeviceOfNode start = random_placement(dice, graph, 3, 4);
    const Placement before(graph, options, start), after(graph, options, with_fewer_crossings(graph, options, start));
    CHECK(after.crossings() <= before.crossings());
    CHECK(after.largest_load() <= before.largest_load() * (1 + 1e-9));
    CHECK(after.overflow() <= before.overflow());
  }
}

}  // namespace
}  // namespace graphpipe::partitioner
