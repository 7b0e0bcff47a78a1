#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "partitioner/alpa/cluster_layers.h"
#include "partitioner/alpa/planner.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

const PlannerEntry& alpa() { return *find_planner("alpa"); }

/// Of the layers whose predecessors are done the first goes first.
std::vector<LayerId> order_of(const LayerTable& graph) {
  std::vector<LayerId> order;
  const auto is_done = [&](LayerId id) { return std::ranges::find(order, id) != order.end(); };
  const auto is_ready = [&](LayerId id) {
    return !is_done(id) &&
           std::ranges::all_of(graph.edges, [&](const LayerEdge& edge) { return edge.to != id || is_done(edge.from); });
  };
  while (order.size() < graph.layers.size())
    for (const LayerId id : graph.layer_ids())
      if (is_ready(id)) {
        order.push_back(id);
        break;
      }
  return order;
}

/// All linear pipelines of a small graph, from the formulas alone.
class AlpaExhaustive {
 public:
  explicit AlpaExhaustive(const LayerRequest& request)
      : request_(request), graph_(*request.graph), order_(order_of(graph_)) {}

  double best() {
    extend(0, request_.machine.devices());
    return best_;
  }

 private:
  struct Stage {
    std::vector<LayerId> layers;
    int degree, replicas;
    bool last_variant;
  };

  const LayerVariant* variant(LayerId id, const Stage& stage) const {
    for (const LayerDegree& degree : graph_.layers[id].degrees)
      if (degree.degree == stage.degree) return stage.last_variant ? &degree.variants.back() : &degree.variants.front();
    return nullptr;
  }

  void extend(size_t from, int devices) {
    if (from == order_.size() && devices == 0) score();
    for (size_t end = from + 1; end <= order_.size(); ++end)
      for (int size = 1; size <= devices; ++size)
        for (const int degree : {1, 2})
          for (const bool last : {false, true}) {
            if (size % degree != 0 ||
                (!std::has_single_bit(static_cast<unsigned>(size)) && size != request_.machine.devices()))
              continue;
            stages_.push_back(
                {{order_.begin() + static_cast<ptrdiff_t>(from), order_.begin() + static_cast<ptrdiff_t>(end)},
                 degree,
                 size / degree,
                 last});
            extend(end, devices - size);
            stages_.pop_back();
          }
  }

  void score() {
    double sum = 0, largest = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const double seconds = time_of(stages_[s], static_cast<double>(stages_.size() - s));
      sum += seconds;
      largest = std::max(largest, seconds);
    }
    best_ = std::min(best_, sum + static_cast<double>(request_.micro_batches - 1) * largest);
  }

  double time_of(const Stage& stage, double in_flight) const {
    const double d = stage.replicas, steps = static_cast<double>(request_.micro_batches);
    double seconds = 0, bytes = 0, memory = 0;
    for (const LayerId id : stage.layers) {
      const LayerVariant* run = variant(id, stage);
      if (run == nullptr) return INFINITY;
      seconds += run->seconds;
      bytes += 4 * (d - 1) * run->weight_bytes / steps;
      memory += run->memory_per_item * in_flight / d + run->memory_fixed;
      for (const LayerEdge& edge : graph_.edges) {
        const bool out = edge.from == id;
        if (!out && edge.to != id) continue;
        const LayerId other = out ? edge.to : edge.from;
        if (std::ranges::find(stage.layers, other) != stage.layers.end()) continue;
        bytes += 2 * edge.bytes;
        for (const LayerSync& sync : out ? run->sync_to : run->sync_from)
          if (sync.neighbour == other) bytes += 2 * sync.bytes;
      }
    }
    if (memory > request_.machine.memory) return INFINITY;
    return (seconds + bytes / request_.machine.levels.front().bandwidth) / d;
  }

  const LayerRequest& request_;
  const LayerTable& graph_;
  std::vector<LayerId> order_;
  std::vector<Stage> stages_;
  double best_ = INFINITY;
};

TEST_CASE("alpa equals the search over all rows of submeshes") {
  int planned = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_piper_layers(seed, 2 + seed % 4, true);
    tests::Dice dice(seed);
    LayerRequest request{.graph = &graph};
    request.machine.levels = {
        {.count = static_cast<int>(1 + dice.below(4)), .bandwidth = static_cast<double>(1 + dice.below(9))}};
    request.machine.memory = static_cast<double>(10 + dice.below(60));
    request.micro_batches = static_cast<int64_t>(1 + dice.below(9));
    const double best = AlpaExhaustive(request).best();
    const auto answer = plan_layers(alpa(), request);
    CHECK(answer.ok() == std::isfinite(best));
    if (!answer.ok()) continue;
    ++planned;
    CHECK(answer->objective == doctest::Approx(best).epsilon(1e-9));
    CHECK(answer->bound == answer->objective);
    CHECK(plan_layers(alpa(), request)->plan == answer->plan);
    request.machine.memory *= 2;
    request.machine.levels[0].bandwidth *= 2;
    CHECK(plan_layers(alpa(), request)->objective <= answer->objective * (1 + 1e-12));
  }
  CHECK(planned > 30);
}

TEST_CASE("a long chain is clustered and planned; a search that is ended says so") {
  const LayerTable graph = tests::equal_branches(1, 64);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 4, .bandwidth = 1e12}, {.count = 2, .bandwidth = 1e12}};
  request.micro_batches = 1000;
  const auto answer = plan_layers(alpa(), request);
  REQUIRE(answer.ok());
  CHECK(answer->objective >= 64 * 3 * 1000 / 8.0 * (1 - 1e-9));
  CHECK(answer->objective <= 64 * 3 * 1000 / 8.0 * 1.02);
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const auto ended = plan_layers(alpa(), request);
  CHECK((ended.ok() ? !ended->complete : ended.problems()[0].code == Code::kInterrupted));
}

TEST_CASE("clusters: as many as asked, balanced, cut where little crosses") {
  LayerTable graph = tests::equal_branches(1, 12);
  for (const LayerId id : graph.layer_ids()) graph.layers[id].output_bytes = id.index() % 3 == 1 ? 1 : 100;
  for (LayerEdge& edge : graph.edges) edge.bytes = 0;
  const auto clusters = cluster_layers(PricedLayers(graph).prices, 4);
  REQUIRE(clusters.size() == 4);
  CHECK(clusters[0] == std::vector<uint32_t>{0, 1});
  CHECK(clusters[1] == std::vector<uint32_t>{2, 3, 4});
  CHECK(clusters[2] == std::vector<uint32_t>{5, 6, 7});
  CHECK(clusters[3] == std::vector<uint32_t>{8, 9, 10, 11});
  CHECK(cluster_layers(PricedLayers(graph).prices, 100).size() == 12);
  graph.layers[LayerId(5)].forward_seconds = 1000;
  for (const auto& cluster : cluster_layers(PricedLayers(graph).prices, 4)) CHECK_FALSE(cluster.empty());
}

}  // namespace
}  // namespace graphpipe::partitioner
