#include <doctest/doctest.h>

#include <random>
#include <set>

#include "files/pipedream_profile.h"
#include "partitioner/pipedream/planner.h"
#include "tests/support/layers.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using namespace graphpipe::tests;
namespace {

LayerTable random_layers(uint64_t seed, size_t layers) {
  std::mt19937_64 random(seed);
  LayerTable graph;
  for (size_t i = 0; i < layers; ++i)
    graph.layers.push_back({.id = ModelText("n" + std::to_string(i)),
                            .forward_seconds = static_cast<double>(random() % 50 + 1) / 1000,
                            .backward_seconds = static_cast<double>(random() % 100) / 1000,
                            .output_bytes = static_cast<double>(random() % 40) * 1e6,
                            .weight_bytes = static_cast<double>(random() % 30) * 1e6});
  for (size_t to = 1; to < layers; ++to)
    for (size_t from = 0; from < to; ++from)
      if (random() % 3 == 0) graph.edges.push_back({LayerId(from), LayerId(to), 0});
  return graph;
}

LayerRequest pipedream_request(const LayerTable& graph, int devices) {
  LayerRequest request;
  request.graph = &graph;
  request.machine.levels = {{.count = devices, .bandwidth = 1e9}};
  return request;
}

// Every linear pipeline over exactly so many devices, priced by the evaluator.
class PipeDreamBruteForce {
 public:
  explicit PipeDreamBruteForce(const LayerRequest& request)
      : request_(request), layers_(*request.graph), model_(pipedream_model(request)) {
    extend(0, 0, 0);
  }
  double best = std::numeric_limits<double>::infinity();

 private:
  bool is_downset(uint32_t set) const {
    for (const LayerEdge& edge : request_.graph->edges)
      if ((set >> edge.to.index() & 1) != 0 && (set >> edge.from.index() & 1) == 0) return false;
    return true;
  }

  void extend(uint32_t before, int used, int first_device) {
    const uint32_t full = (uint32_t{1} << request_.graph->layers.size()) - 1;
    const int devices = request_.machine.devices();
    if (before == full) {
      if (used == devices)
        best = std::min(best, price_plan(layers_.prices, layers_.encode(plan_), request_.machine, model_).bottleneck);
      return;
    }
    for (uint32_t set = before + 1; set <= full; ++set) {
      if ((set & before) != before || !is_downset(set)) continue;
      for (int d = 1; d <= (request_.replication ? devices - used : std::min(1, devices - used)); ++d) {
        LayerStage stage{.replicas = d};
        for (int i = 0; i < d; ++i) stage.devices.push_back(first_device + i);
        for (size_t i = 0; i < request_.graph->layers.size(); ++i)
          if (((set & ~before) >> i & 1) != 0) stage.layers.push_back(LayerId(i));
        plan_.stages.push_back(std::move(stage));
        extend(set, used + d, first_device + d);
        plan_.stages.pop_back();
      }
    }
  }

  const LayerRequest& request_;
  const PricedLayers layers_;
  const CostModel model_;
  LayerCut plan_;
};

}  // namespace

TEST_CASE("PipeDream's row equals exhaustive search, with and without its rule for cuts, and its checker agrees") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_layers(seed, 6);
    for (const bool quirks : {false, true}) {
      CAPTURE(quirks);
      LayerRequest request = pipedream_request(graph, 3);
      request.replication = seed % 4 != 0;
      if (quirks) request.compat = {"PD2"};
      const auto answer = plan_layers(*find_planner("pipedream"), request);
      const double best = PipeDreamBruteForce(request).best;
      if (!answer.ok()) {
        CHECK(best == std::numeric_limits<double>::infinity());
        continue;
      }
      CHECK(answer->objective == doctest::Approx(best * 1e3).epsilon(1e-12));
      CHECK(answer->bound == answer->objective);
    }
  }
}

TEST_CASE("the order of the layers does not change PipeDream's objective by a bit") {
  const LayerTable graph = random_layers(7, 9);
  const double expected = plan_layers(*find_planner("pipedream"), pipedream_request(graph, 4))->objective;
  std::mt19937_64 random(1);
  for (int round = 0; round < 10; ++round) {
    std::vector<size_t> place(graph.layers.size());
    for (size_t i = 0; i < place.size(); ++i) place[i] = i;
    std::shuffle(place.begin(), place.end(), random);
    LayerTable other = graph;
    for (size_t i = 0; i < place.size(); ++i) other.layers[LayerId(place[i])] = graph.layers[LayerId(i)];
    for (LayerEdge& edge : other.edges)
      edge = {LayerId(place[edge.from.index()]), LayerId(place[edge.to.index()]), edge.bytes};
    CHECK(plan_layers(*find_planner("pipedream"), pipedream_request(other, 4))->objective == expected);
  }
}

TEST_CASE("more memory or bandwidth never makes PipeDream's plan worse, and a copy too few is refused") {
  const LayerTable graph = random_layers(3, 8);
  double before = std::numeric_limits<double>::infinity();
  for (const double memory : {1.5e8, 2.5e8, 4e8, 1e9}) {
    LayerRequest request = pipedream_request(graph, 3);
    request.machine.memory = memory;
    const auto answer = plan_layers(*find_planner("pipedream"), request);
    const double objective = answer.ok() ? answer->objective : std::numeric_limits<double>::infinity();
    CHECK(objective <= before);
    before = objective;
  }
  CHECK(before < std::numeric_limits<double>::infinity());
  for (double bandwidth = 1e7; bandwidth < 1e10; bandwidth *= 3) {
    LayerRequest faster = pipedream_request(graph, 3);
    faster.machine.levels[0].bandwidth = bandwidth;
    const double slow = plan_layers(*find_planner("pipedream"), faster)->objective;
    faster.machine.levels[0].bandwidth *= 3;
    CHECK(plan_layers(*find_planner("pipedream"), faster)->objective <= slow);
  }
  LayerRequest request = pipedream_request(graph, 3);
  request.machine.memory = 1e9;
  auto answer = plan_layers(*find_planner("pipedream"), request);
  REQUIRE(answer.ok());
  request.machine.memory = 1;
  CHECK_FALSE(check_layer_cut(request, *answer).empty());
}

TEST_CASE("a second source loses no cut, and nested levels are checked from node lists") {
  const LayerTable graph = random_layers(11, 8);
  LayerRequest request = pipedream_request(graph, 4);
  request.machine.levels = {{.count = 2, .bandwidth = 4e9}, {.count = 2, .bandwidth = 1e9}};
  const auto plain = plan_layers(*find_planner("pipedream"), request);
  request.compat = *parse_compat(*find_planner("pipedream"), "all");
  const auto compat = plan_layers(*find_planner("pipedream"), request);
  REQUIRE(plain.ok());
  REQUIRE(compat.ok());
  CHECK(plain->objective <= compat->objective * (1 + 1e-12));
  CHECK_FALSE(parse_compat(*find_planner("pipedream"), "PD2,P1").ok());
}

TEST_CASE("on three levels every device has one stage, and all devices have one") {
  int nested = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = random_layers(seed, 6 + seed % 5);
    LayerRequest request = pipedream_request(graph, 16);
    const int inner = seed % 2 == 0 ? 2 : 4;
    request.machine.levels = {
        {.count = 2, .bandwidth = 64e9}, {.count = inner, .bandwidth = 16e9}, {.count = 8 / inner, .bandwidth = 1e9}};
    const auto answer = plan_layers(*find_planner("pipedream"), request);
    REQUIRE(answer.ok());
    std::multiset<int> used;
    for (const LayerStage& stage : answer->plan.stages) used.insert(stage.devices.begin(), stage.devices.end());
    CHECK(used.size() == 16);
    CHECK(std::set<int>(used.begin(), used.end()).size() == 16);
    nested += std::ranges::any_of(answer->groups,
                                  [](const StageGroup& group) { return group.level == 2 && group.first > 0; });
  }
  CHECK(nested > 0);
}

TEST_CASE("hostile PipeDream profiles are refused with the line") {
  const auto problem = [](const std::string& text) {
    const auto graph = files::parse_pipedream_profile(text);
    return graph.ok() ? std::string() : to_line(graph.problems().front());
  };
  const std::string node =
      " -- Conv -- forward_compute_time=1.0, backward_compute_time=2, activation_size=[1; 2], "
      "parameter_size=0\n";
  CHECK(problem("a" + node + "b" + node + "\ta -- b\n").empty());
  CHECK(problem("a" + node + "\ta -- c\n").find("line 2") != std::string::npos);
  CHECK(problem("a" + node + "a" + node).find("line 2") != std::string::npos);
  CHECK(problem("a" + node + "b" + node + "\ta -- b\n\tb -- a\n").find("cycle") != std::string::npos);
  CHECK(problem("a -- Conv -- forward_compute_time=nan\n").find("line 1") != std::string::npos);
  CHECK(problem("a -- Conv\n").find("line 1") != std::string::npos);
  CHECK_FALSE(problem("").empty());
}
