#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "ir/connected_components.h"
#include "partitioner/tarnawski/max_load_graph.h"
#include "partitioner/tarnawski/non_contiguous.h"
#include "partitioner/tarnawski/planner.h"
#include "support/digraph.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

const PlannerEntry& max_throughput() { return *find_planner("max-throughput"); }

/// All ways to give classes devices, from the formulas alone.
class MaxLoadExhaustive {
 public:
  explicit MaxLoadExhaustive(const LayerRequest& request) : request_(request), graph_(*request.graph) {
    for (const Layer& layer : graph_.layers)
      class_of_.push_back(index_of_.emplace(*layer.color_class, index_of_.size()).first->second);
    has_forward_.assign(index_of_.size(), false);
    for (size_t i = 0; i < class_of_.size(); ++i)
      if (!graph_.layers[LayerId(i)].is_backward) has_forward_[class_of_[i]] = true;
    devices_ = static_cast<size_t>(request.machine.devices() + request.machine.cpus);
  }

  double best(bool contiguous = true) {
    std::vector<size_t> device(index_of_.size(), 0);
    double best = INFINITY;
    while (true) {
      if (!contiguous || has_order(device)) best = std::min(best, load(device));
      size_t at = 0;
      while (at < device.size() && ++device[at] == devices_) device[at++] = 0;
      if (at == device.size()) return best;
    }
  }

 private:
  bool has_order(const std::vector<size_t>& device) const {
    EdgeList edges;
    for (const LayerEdge& edge : graph_.edges) {
      const size_t from = class_of_[edge.from.index()], to = class_of_[edge.to.index()];
      const bool back_from = graph_.layers[edge.from].is_backward, back_to = graph_.layers[edge.to].is_backward;
      const auto a = static_cast<uint32_t>(device[from]), b = static_cast<uint32_t>(device[to]);
      if (!back_from && !back_to) edges.emplace_back(a, b);
      if (back_from && back_to && (!has_forward_[from] || !has_forward_[to])) edges.emplace_back(b, a);
    }
    // Devices are nodes: acyclic where every reachable pair is one-way.
    std::vector<std::vector<bool>> reaches(devices_, std::vector<bool>(devices_, false));
    for (const auto& [a, b] : edges) reaches[a][b] = true;
    for (size_t k = 0; k < devices_; ++k)
      for (size_t i = 0; i < devices_; ++i)
        for (size_t j = 0; j < devices_; ++j)
          if (reaches[i][k] && reaches[k][j]) reaches[i][j] = true;
    for (size_t i = 0; i < devices_; ++i)
      for (size_t j = 0; j < i; ++j)
        if (reaches[i][j] && reaches[j][i]) return false;
    return true;
  }

  double load(const std::vector<size_t>& device) const {
    const auto accelerators = static_cast<size_t>(request_.machine.devices());
    std::vector<double> loads(devices_, 0), bytes(devices_, 0);
    for (const LayerId id : graph_.layer_ids()) {
      const Layer& layer = graph_.layers[id];
      const size_t own = device[class_of_[id.index()]];
      if (own < accelerators && !layer.on_accelerator) return INFINITY;
      loads[own] += own < accelerators ? layer.seconds() : layer.cpu_seconds;
      bytes[own] += layer.memory_bytes;
      std::set<size_t> touched;
      for (const LayerEdge& edge : graph_.edges)
        if (edge.from == id) touched.insert(device[class_of_[edge.to.index()]]);
      if (touched.empty() || (touched.size() == 1 && touched.contains(own))) continue;
      touched.insert(own);
      for (const size_t other : touched)
        if (other < accelerators) loads[other] += layer.transfer_seconds;
    }
    for (size_t i = 0; i < accelerators; ++i)
      if (bytes[i] > request_.machine.memory) return INFINITY;
    return *std::ranges::max_element(loads);
  }

  const LayerRequest& request_;
  const LayerTable& graph_;
  std::map<int64_t, size_t> index_of_;
  std::vector<size_t> class_of_;
  std::vector<bool> has_forward_;
  size_t devices_ = 0;
};

LayerRequest max_load_request(const LayerTable& graph, uint64_t seed) {
  tests::Dice dice(seed + 77);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = static_cast<int>(1 + dice.below(3)), .bandwidth = 1}};
  request.machine.cpus = static_cast<int>(dice.below(3));
  request.machine.memory = static_cast<double>(10 + dice.below(40));
  return request;
}

TEST_CASE("max-throughput equals the search over all contiguous placements") {
  int planned = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_placement_layers(seed, 2 + seed % 5);
    LayerRequest request = max_load_request(graph, seed);
    const double best = MaxLoadExhaustive(request).best();
    const auto answer = plan_layers(max_throughput(), request);
    CHECK(answer.ok() == std::isfinite(best));
    if (!answer.ok()) {
      CHECK(answer.problems()[0].code == Code::kNoFeasiblePlan);
      continue;
    }
    ++planned;
    CHECK(answer->objective == doctest::Approx(best).epsilon(1e-9));
    CHECK(answer->bound == answer->objective);
    CHECK(plan_layers(max_throughput(), request)->plan == answer->plan);
    for (const char* mode : {"linear", "W4"}) {
      request.compat = {mode};
      const auto other = plan_layers(max_throughput(), request);
      if (other.ok()) CHECK(other->objective >= best * (1 - 1e-12));
    }
  }
  CHECK(planned > 80);
}

TEST_CASE("with several runs per device it equals the search over all placements, and is never above one run") {
  int better = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_placement_layers(seed, 2 + seed % 6);
    LayerRequest request = max_load_request(graph, seed);
    request.machine.cpus = std::min(request.machine.cpus, 1);
    const double best = MaxLoadExhaustive(request).best(false);
    const auto one_run = plan_layers(max_throughput(), request);
    request.non_contiguous = true;
    const auto answer = plan_layers(max_throughput(), request);
    CHECK(answer.ok() == std::isfinite(best));
    if (!answer.ok()) continue;
    CHECK(answer->objective == doctest::Approx(best).epsilon(1e-9));
    CHECK(answer->bound <= best * (1 + 1e-9));
    if (one_run.ok()) CHECK(answer->objective <= one_run->objective * (1 + 1e-12));
    if (one_run.ok() && answer->objective < one_run->objective) ++better;
    CHECK(plan_layers(max_throughput(), request)->plan == answer->plan);
  }
  CHECK(better > 5);
}

TEST_CASE("several runs per device fit memory that no single runs fit, and are refused where nothing fits") {
  LayerTable graph = tests::layer_table(4, {{0, 1}, {1, 2}, {2, 3}});
  const double bytes[] = {6, 5, 4, 5};
  for (const LayerId id : graph.layer_ids()) {
    graph.layers[id].forward_seconds = 1;
    graph.layers[id].memory_bytes = bytes[id.index()];
  }
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 2, .bandwidth = 1}};
  request.machine.memory = 10;
  CHECK_FALSE(plan_layers(max_throughput(), request).ok());
  request.non_contiguous = true;
  const auto answer = plan_layers(max_throughput(), request);
  REQUIRE(answer.ok());
  CHECK(answer->objective == 2);
  CHECK(answer->bound == doctest::Approx(2));
  CHECK(answer->plan.stages.size() == 4);
  request.machine.memory = 9.5;
  const auto without = plan_layers(max_throughput(), request);
  REQUIRE_FALSE(without.ok());
  CHECK(without.problems()[0].code == Code::kNoFeasiblePlan);
}

/// Three layers in a row, the outer ones on device 0: stages that share it.
LayerAnswer there_and_back() {
  LayerAnswer answer;
  answer.model = non_contiguous_model();
  answer.unit = "s";
  for (const size_t layer : {0, 1, 2})
    answer.plan.stages.push_back({.layers = {LayerId(layer)}, .devices = {layer == 1 ? 1 : 0}});
  answer.objective = 10;  // 1 + 4 of work, the tensors of layers 0 and 1 in and out: 2 + 3
  return answer;
}

TEST_CASE("stages of one device cost what its layers together cost, and share it only where both sides say so") {
  LayerTable graph = tests::layer_table(3, {{0, 1}, {1, 2}, {0, 2}});
  for (const size_t i : {0, 1, 2}) {
    Layer& layer = graph.layers[LayerId(i)];
    layer.forward_seconds = i == 0 ? 1 : 4;
    layer.transfer_seconds = static_cast<double>(2 + i);
    layer.memory_bytes = 5;
  }
  LayerRequest request{.graph = &graph};
  request.non_contiguous = true;
  request.machine.levels = {{.count = 2, .bandwidth = 1}};
  request.machine.memory = 10;
  const LayerAnswer sound = there_and_back();
  CHECK(check_layer_cut(request, sound).empty());
  const auto price = price_layer_cut(graph, sound.plan, request.machine, sound.model);
  CHECK(price.bottleneck == 10);
  CHECK(price.shortfall == 0);
  CHECK(price.stages[0].total == 10);
  CHECK(price.stages[1].total == 9);
  CHECK(price.stages[2].total == 10);
  const auto is_refused = [&](const LayerRequest& asked, auto&& change) {
    LayerAnswer wrong = sound;
    change(wrong);
    return !check_layer_cut(asked, wrong).empty();
  };
  CHECK(is_refused(request, [](LayerAnswer& a) { a.objective = 9; }));
  CHECK(is_refused(request, [](LayerAnswer& a) { a.bound = 11; }));
  CHECK(is_refused(request, [](LayerAnswer& a) { a.model = max_throughput_model(); }));
  CHECK(is_refused(request, [](LayerAnswer& a) { std::swap(a.plan.stages[0], a.plan.stages[1]); }));
  CHECK(is_refused(request, [](LayerAnswer& a) { a.plan.stages[2].devices = {0, 1}; }));
  LayerRequest other = request;
  other.machine.memory = 9;
  CHECK(is_refused(other, [](LayerAnswer&) {}));
  other = request;
  other.non_contiguous = false;
  CHECK(is_refused(other, [](LayerAnswer&) {}));
}

TEST_CASE("several runs per device: what ends the search is said, and compatibility with one run is refused") {
  std::vector<std::pair<size_t, size_t>> row;
  for (size_t layer = 1; layer < 200; ++layer) row.emplace_back(layer - 1, layer);
  LayerTable graph = tests::layer_table(200, row);
  tests::Dice dice(1);
  for (Layer& layer : graph.layers) layer.forward_seconds = static_cast<double>(1000 + dice.below(9999)) / 7;
  LayerRequest request{.graph = &graph};
  request.non_contiguous = true;
  request.machine.levels = {{.count = 5, .bandwidth = 1}};
  request.time_limit = 0.2;
  const auto short_of_time = plan_layers(max_throughput(), request);
  REQUIRE(short_of_time.ok());
  CHECK_FALSE(short_of_time->complete);
  CHECK(short_of_time->stopped == "the time limit was reached");
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const auto ended = plan_layers(max_throughput(), request);
  REQUIRE(ended.ok());
  CHECK_FALSE(ended->complete);
  request.compat = {"linear"};
  const auto contradiction = plan_layers(max_throughput(), request);
  REQUIRE_FALSE(contradiction.ok());
  CHECK(contradiction.problems()[0].code == Code::kUsage);
}

TEST_CASE("more memory, accelerators or CPUs never make the load larger") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_placement_layers(seed, 9);
    LayerRequest request = max_load_request(graph, seed);
    double before = INFINITY;
    for (int step = 0; step < 6; ++step) {
      const auto answer = plan_layers(max_throughput(), request);
      const double now = answer.ok() ? answer->objective : INFINITY;
      CHECK(now <= before * (1 + 1e-12));
      before = now;
      if (step % 3 == 0) request.machine.memory *= 2;
      if (step % 3 == 1) ++request.machine.levels[0].count;
      if (step % 3 == 2) ++request.machine.cpus;
    }
  }
}

TEST_CASE("eight branches of four layers are placed, and proven") {
  const LayerTable graph = tests::equal_branches(8, 4);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 8, .bandwidth = 1}};
  const auto answer = plan_layers(max_throughput(), request);
  REQUIRE(answer.ok());
  CHECK(answer->objective == doctest::Approx(12));
  CHECK(answer->gap() == 0);
  request.memory_budget = 1e6;
  const auto narrow = plan_layers(max_throughput(), request);
  REQUIRE(narrow.ok());
  CHECK(narrow->bound >= 12 * (1 - 1e-9));
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const auto ended = plan_layers(max_throughput(), request);
  REQUIRE(ended.ok());
  CHECK_FALSE(ended->complete);
}

TEST_CASE("strongly connected and biconnected components equal their definitions") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const size_t nodes = 1 + dice.below(8);
    EdgeList edges;
    for (size_t i = dice.below(14); i > 0; --i) {
      const auto a = static_cast<uint32_t>(dice.below(nodes)), b = static_cast<uint32_t>(dice.below(nodes));
      if (a != b) edges.emplace_back(a, b);
    }
    const auto reach = [&](uint32_t from, uint32_t without, bool both_ways) {
      std::set<uint32_t> seen{from};
      for (size_t round = 0; round < nodes; ++round)
        for (const auto& [a, b] : edges) {
          if (seen.contains(a) && b != without) seen.insert(b);
          if (both_ways && seen.contains(b) && a != without) seen.insert(a);
        }
      return seen;
    };
    const auto strong = ir::strongly_connected_components(nodes, edges);
    for (uint32_t a = 0; a < nodes; ++a)
      for (uint32_t b = 0; b < nodes; ++b)
        CHECK((strong[a] == strong[b]) ==
              (reach(a, UINT32_MAX, false).contains(b) && reach(b, UINT32_MAX, false).contains(a)));
    // Two edges at a node are in one part where their other ends meet without the node.
    const auto part = ir::biconnected_components(nodes, edges);
    for (size_t i = 0; i < edges.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        for (const uint32_t node : {edges[i].first, edges[i].second}) {
          if (edges[j].first != node && edges[j].second != node) continue;
          const uint32_t a = edges[i].first ^ edges[i].second ^ node, b = edges[j].first ^ edges[j].second ^ node;
          CHECK((part[i] == part[j]) == reach(a, node, true).contains(b));
        }
  }
}

TEST_CASE("fusing: classes, their cycles, free layers with one neighbour, backward layers without a forward one") {
  LayerTable graph = tests::layer_table(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
  for (Layer& layer : graph.layers) layer.forward_seconds = 1;
  graph.layers[LayerId(1)].color_class = graph.layers[LayerId(3)].color_class = 7;
  CHECK(fuse_nodes(PricedLayers(graph).prices, Fusion::kClasses).nodes.size() == 4);  // 1, 2 and 3 are on a cycle
  graph.layers[LayerId(0)].forward_seconds = 0;
  CHECK(fuse_nodes(PricedLayers(graph).prices, Fusion::kClasses).nodes.size() == 3);
  graph.layers[LayerId(5)] = {.id = ModelText("5"), .backward_seconds = 1, .is_backward = true};
  graph.layers[LayerId(4)].is_backward = true;
  const MaxLoadGraph fused = fuse_nodes(PricedLayers(graph).prices, Fusion::kClasses);
  REQUIRE(fused.nodes.size() == 3);
  CHECK(fused.edges == EdgeList{{2, 1}});  // the backward edge 4 -> 5 turned round
}

}  // namespace
}  // namespace graphpipe::partitioner
