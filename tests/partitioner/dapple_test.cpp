// DAPPLE against the families of plans that it declares, on graphs small enough to try them all.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "partitioner/dapple/machines.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

LayerTable random_profile(uint64_t seed, size_t layers) {
  tests::Dice dice(seed);
  LayerTable graph = tests::layer_table(layers, tests::random_layer_edges(dice, layers, 3));
  for (Layer& layer : graph.layers) {
    layer.forward_seconds = static_cast<double>(1 + dice.below(50)) / 1024;
    layer.backward_seconds = static_cast<double>(dice.below(100)) / 1024;
    layer.output_bytes = static_cast<double>(dice.below(40)) * 1e7;
    layer.weight_bytes = static_cast<double>(dice.below(30)) * 1e7;
  }
  return graph;
}

LayerRequest request_for(const LayerTable& graph, const std::vector<int>& machines) {
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = machines.back(), .bandwidth = machines.size() == 1 ? 25e9 : 1e9}};
  request.machines = machines;
  return request;
}

/// The planner's families, enumerated; each row is scored by the checker's formula.
class Families {
 public:
  explicit Families(const LayerRequest& request)
      : request_(request), graph_(*request.graph), layers_(graph_), devices_(request.machine.devices()) {}

  /// Data parallelism and all pairs of stages, first devices first.
  double best_of_one_or_two() {
    double best = 0;
    for (int slots = 2; slots <= devices_; ++slots)
      best = std::max(best, score({full()}, {slots}, devices_ / slots, 2));
    for (int slots = 1; slots < devices_; ++slots)
      for (uint32_t cut = 1; cut < full(); ++cut)
        if (is_closed(cut)) best = std::max(best, score({cut, full()}, {slots, devices_ - slots}, 1, 1));
    return best;
  }

  /// The scores, from the worst to the best, of the rows of one device per stage that have the smallest bottleneck.
  std::pair<double, double> straight(int stages) {
    double smallest = INFINITY;
    std::pair<double, double> scores{0, 0};
    for_each_row(stages, [&](const std::vector<uint32_t>& cuts) {
      const double slowest = bottleneck(cuts, devices_ / stages);
      const double found = score(cuts, std::vector<int>(cuts.size(), 1), devices_ / stages, 2);
      if (slowest < smallest * (1 - 1e-12)) scores = {found, found};
      else if (slowest <= smallest * (1 + 1e-12))
        scores = {std::min(scores.first, found), std::max(scores.second, found)};
      smallest = std::min(smallest, slowest);
    });
    return scores;
  }

  /// Of all rows with any replicas that use all devices.
  double best_of_all() {
    double best = best_of_one_or_two();
    for (int stages = 2; stages <= devices_; ++stages)
      for_each_row(stages, [&](const std::vector<uint32_t>& cuts) {
        std::vector<int> slots(cuts.size(), 1);
        spread(cuts, slots, 0, devices_ - stages, best);
      });
    return best;
  }

 private:
  uint32_t full() const { return (1u << graph_.layers.size()) - 1; }

  bool is_closed(uint32_t set) const {
    return std::ranges::all_of(graph_.edges, [&](const LayerEdge& edge) {
      return !(set >> edge.to.index() & 1) || (set >> edge.from.index() & 1);
    });
  }

  void for_each_row(int stages, const std::function<void(const std::vector<uint32_t>&)>& visit) {
    std::vector<uint32_t> cuts;
    const std::function<void()> extend = [&] {
      const uint32_t before = cuts.empty() ? 0 : cuts.back();
      if (static_cast<int>(cuts.size()) + 1 == stages) {
        if (before == full()) return;
        cuts.push_back(full());
        visit(cuts);
        cuts.pop_back();
        return;
      }
      for (uint32_t set = before + 1; set < full(); ++set) {
        if ((set & before) != before || !is_closed(set)) continue;
        cuts.push_back(set);
        extend();
        cuts.pop_back();
      }
    };
    extend();
  }

  void spread(const std::vector<uint32_t>& cuts, std::vector<int>& slots, size_t stage, int left, double& best) {
    if (stage + 1 == slots.size()) {
      slots[stage] = 1 + left;
      best = std::max(best, score(cuts, slots, 1, 2));
      return;
    }
    for (int more = 0; more <= left; ++more) {
      slots[stage] = 1 + more;
      spread(cuts, slots, stage + 1, left - more, best);
    }
  }

  double scale() const { return static_cast<double>(request_.batch) / static_cast<double>(request_.profile_batch); }

  double bottleneck(const std::vector<uint32_t>& cuts, int copies) const {
    double slowest = 0;
    for (size_t s = 0; s < cuts.size(); ++s) {
      const uint32_t before = s == 0 ? 0 : cuts[s - 1];
      double seconds = 0, entering = 0;
      for (const LayerId id : graph_.layer_ids()) {
        if ((cuts[s] & ~before) >> id.index() & 1) seconds += graph_.layers[id].seconds() * scale();
        const bool crosses = std::ranges::any_of(graph_.edges, [&](const LayerEdge& edge) {
          return edge.from == id && (before >> id.index() & 1) && !(before >> edge.to.index() & 1);
        });
        if (crosses) entering += graph_.layers[id].output_bytes * scale();
      }
      slowest = std::max({slowest, seconds / copies, 2 * entering / dapple_links(request_).inside});
    }
    return slowest;
  }

  double score(const std::vector<uint32_t>& cuts, const std::vector<int>& slots, int copies, double traffic_factor) {
    if (request_.batch / copies / request_.micro_batch == 0) return 0;
    LayerAnswer answer;
    answer.model = {.score = Score::kDapple,
                    .traffic = TrafficRule::kBoundaryTensors,
                    .memory = MemoryRule::kNone,
                    .pipeline_copies = copies,
                    .traffic_factor = traffic_factor};
    int next = 0;
    for (size_t s = 0; s < cuts.size(); ++s) {
      LayerStage stage{.replicas = slots[s] * copies};
      for (int i = 0; i < stage.replicas; ++i) stage.devices.push_back(next++);
      for (const LayerId id : graph_.layer_ids())
        if ((cuts[s] & ~(s == 0 ? 0 : cuts[s - 1])) >> id.index() & 1) stage.layers.push_back(id);
      answer.plan.stages.push_back(std::move(stage));
    }
    return partitioner::recomputed_objective(layers_.asked(request_), encoded(layers_, answer));
  }

  const LayerRequest& request_;
  const LayerTable& graph_;
  const PricedLayers layers_;
  const int devices_;
};

}  // namespace

TEST_CASE("on one machine DAPPLE gives the best of its families, and more without its blindness to unequal rows") {
  double worst = 1;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_profile(seed, 5 + seed % 3);
    LayerRequest request = request_for(graph, {2 + static_cast<int>(seed % 4)});
    request.compat = {"D1"};
    const auto blind = plan_layers(*find_planner("dapple"), request);
    REQUIRE(blind.ok());
    const int devices = request.machine.devices();
    Families families(request);
    auto [low, high] = families.straight(devices);
    if (devices == 4) {
      const auto pairs = families.straight(2);
      low = std::max(low, pairs.first);
      high = std::max(high, pairs.second);
    }
    const double known = families.best_of_one_or_two();
    // Rows with equal bottlenecks may differ in score: any of them is the family's.
    CHECK(blind->objective >= std::max(known, low) * (1 - 1e-12));
    CHECK(blind->objective <= std::max(known, high) * (1 + 1e-12));
    request.compat.clear();
    const auto open = plan_layers(*find_planner("dapple"), request);
    REQUIRE(open.ok());
    CHECK(open->objective >= blind->objective);
    CHECK(plan_layers(*find_planner("dapple"), request)->plan == open->plan);
    worst = std::max(worst, Families(request).best_of_all() / open->objective);
  }
  MESSAGE("the best row of any replicas is up to ", worst, " times as fast as DAPPLE's plan");
  CHECK(worst < 1.5);
}

TEST_CASE("on several machines DAPPLE's plan is sound and never behind data parallelism or two stages") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_profile(seed, 6);
    const std::vector<std::vector<int>> machines = {{2, 4}, {1, 2, 3}, {3, 4}, {1, 4}};
    const LayerRequest request = request_for(graph, machines[seed % machines.size()]);
    const auto answer = plan_layers(*find_planner("dapple"), request);
    REQUIRE(answer.ok());
    CHECK(answer->objective <= answer->bound);
    CHECK(answer->objective >= Families(request).best_of_one_or_two() * (1 - 1e-12));
  }
}

TEST_CASE("without replication DAPPLE has one device per stage, and the checker refuses anything else") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_profile(seed, 6);
    const std::vector<std::vector<int>> machines = {{4}, {2, 4}, {8}, {1}};
    LayerRequest request = request_for(graph, machines[seed % machines.size()]);
    const auto replicated = plan_layers(*find_planner("dapple"), request);
    REQUIRE(replicated.ok());
    request.replication = false;
    for (const bool quirks : {false, true}) {
      if (quirks) request.compat = *parse_compat(*find_planner("dapple"), "all");
      const auto answer = plan_layers(*find_planner("dapple"), request);
      REQUIRE(answer.ok());
      for (const LayerStage& stage : answer->plan.stages) CHECK(stage.devices.size() == 1);
      CHECK(answer->plan.stages.size() <= static_cast<size_t>(request.machine.devices()));
      CHECK(answer->objective >= 1 - 1e-9);
    }
    const auto has_replicas = [](const LayerStage& stage) { return stage.replicas > 1; };
    if (std::ranges::any_of(replicated->plan.stages, has_replicas)) {
      request.compat.clear();
      CHECK_FALSE(check_layer_cut(request, *replicated).empty());
    }
  }
}

TEST_CASE("DAPPLE plans with the links of the machine, and with those of the original only where it is asked to") {
  int better = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_profile(seed, 7);
    LayerRequest request{.graph = &graph};
    request.machine.levels = {{.count = 2, .bandwidth = 1e11}, {.count = 2, .bandwidth = 3e6}};
    const auto own = plan_layers(*find_planner("dapple"), request);
    REQUIRE(own.ok());
    LayerRequest as_original = request;
    as_original.compat = {"D9"};
    as_original.machines = {2, 4};
    const auto blind = plan_layers(*find_planner("dapple"), as_original);
    as_original.machine.levels = {{.count = 2, .bandwidth = 1}, {.count = 2, .bandwidth = 1}};
    const auto blinder = plan_layers(*find_planner("dapple"), as_original);
    REQUIRE(blind.ok());
    REQUIRE(blinder.ok());
    CHECK(blind->objective == blinder->objective);
    // What the plan of the fixed links is worth on these.
    LayerAnswer here = *blind;
    const double worth = recomputed_objective(request, here);
    CHECK(own->objective >= worth * (1 - 1e-9));
    better += own->objective > 2 * worth;
  }
  CHECK(better > 5);
}

TEST_CASE("levels are machines where none are named: links inside are those of the level that holds the largest") {
  const LayerTable graph = random_profile(1, 3);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 4, .bandwidth = 8e9}, {.count = 2, .bandwidth = 1e9}};
  CHECK(dapple_machine_ends(request) == std::vector<int>{4, 8});
  CHECK(dapple_links(request).inside == 8e9);
  CHECK(dapple_links(request).between == 1e9);
  request.machines = {6, 8};  // one machine spans both groups
  CHECK(dapple_links(request).inside == 1e9);
  request.machine.levels = {{.count = 4, .bandwidth = 8e9}};
  request.machines.clear();
  CHECK(dapple_machine_ends(request).empty());
  CHECK(dapple_links(request).inside == 8e9);
}

}  // namespace graphpipe::partitioner
