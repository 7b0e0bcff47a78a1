// PipeDream-2BW's planner against the paper's formulas, written out here a second time.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "partitioner/baselines/repeated_layers.h"
#include "partitioner/cost_models/quirks.h"
#include "partitioner/pipedream_2bw/planner.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

const PlannerEntry& two_bw() { return *find_planner("2bw"); }

/// A chain with forward and backward times, or with measured variants.
LayerTable chain_of(tests::Dice& dice, size_t layers, bool measured) {
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t i = 1; i < layers; ++i) edges.emplace_back(i - 1, i);
  LayerTable graph = tests::layer_table(layers, edges);
  const size_t heaviest = dice.below(2) == 0 ? 4 : 40;
  for (Layer& layer : graph.layers) {
    layer.forward_seconds = static_cast<double>(1 + dice.below(5));
    layer.backward_seconds = static_cast<double>(1 + dice.below(9));
    layer.output_bytes = static_cast<double>(1 + dice.below(20));
    layer.weight_bytes = static_cast<double>(dice.below(heaviest));
    if (!measured) continue;
    LayerVariant plain{.seconds = layer.seconds(),
                       .weight_bytes = layer.weight_bytes,
                       .memory_per_item = static_cast<double>(4 + dice.below(20)),
                       .memory_fixed = 2 * layer.weight_bytes + static_cast<double>(dice.below(3))};
    LayerVariant again = plain;
    again.seconds += static_cast<double>(dice.below(4));
    again.memory_per_item = static_cast<double>(dice.below(4));
    again.memory_fixed += static_cast<double>(dice.below(6));
    layer.degrees = {{.degree = 1, .variants = {plain}}};
    if (dice.below(4) > 0) layer.degrees[0].variants.push_back(again);
  }
  for (LayerEdge& edge : graph.edges) edge.bytes = graph.layers[edge.from].output_bytes;
  return graph;
}

/// The formulas of the paper for a chain that is cut into runs whose last n mod d hold one layer more.
class Formula {
 public:
  explicit Formula(const LayerRequest& request) : request_(request), graph_(*request.graph) {
    for (const Layer& layer : graph_.layers)
      measured_ = measured_ || (!layer.degrees.empty() && layer.degrees[0].variants.size() > 1);
  }

  /// The best throughput, or nothing where no (d, w, r) is allowed and fits.
  std::optional<double> best() const {
    std::optional<double> best;
    const int devices = request_.machine.devices();
    for (int d = 1; d <= std::min<int>(devices, static_cast<int>(graph_.layers.size())); ++d)
      for (int w = 1; w * d <= devices; ++w) {
        if (w * d != devices && !request_.use_fewer) continue;
        if (w > 1 && !request_.replication) continue;
        for (const bool recompute : {false, true}) {
          if (recompute && !request_.recompute) continue;
          for (const bool by_pipeline : {false, true}) {
            const double now = throughput(d, w, recompute, by_pipeline);
            if (now > 0 && (!best || now > *best)) best = now;
          }
        }
      }
    return best;
  }

  /// Units per second; zero where the split is not allowed or does not fit.
  double throughput(int d, int w, bool recompute, bool by_pipeline) const {
    const auto m = request_.micro_batches / w;
    if (m < d) return 0;
    const auto device = [&](int stage, int pipeline) {
      return by_pipeline ? pipeline * d + stage : stage * w + pipeline;
    };
    // Of the slowest pipeline between a stage and the next, and of the reduction of a stage.
    const auto hop = [&](int stage) {
      double slowest = INFINITY;
      for (int p = 0; p < w; ++p) slowest = std::min(slowest, bandwidth(device(stage, p), device(stage + 1, p)));
      return slowest;
    };
    const auto ring = [&](int stage) {
      double slowest = INFINITY;
      for (int p = 0; p < w; ++p)
        for (int q = 0; q < w; ++q) slowest = std::min(slowest, bandwidth(device(stage, p), device(stage, q)));
      return slowest;
    };
    double slowest = 0;
    size_t first = 0;
    const size_t n = graph_.layers.size(), runs = static_cast<size_t>(d);
    for (size_t run = 0; run < runs; ++run) {
      const size_t end = first + n / runs + (run + n % runs >= runs ? 1 : 0);
      const double enters = first > 0 ? graph_.edges[first - 1].bytes : 0;
      const double returns = end < n ? graph_.edges[end - 1].bytes : 0;
      double compute = 0, weights = 0, fixed = 0, kept = 0;
      bool chose_smaller = false;
      for (size_t i = first; i < end; ++i) {
        const Layer& layer = graph_.layers[LayerId(i)];
        weights += layer.weight_bytes;
        if (layer.degrees.empty()) {
          compute += layer.forward_seconds + layer.backward_seconds + (recompute ? layer.forward_seconds : 0);
          kept += layer.output_bytes;
          fixed += 2 * layer.weight_bytes;
          continue;
        }
        const auto& variants = layer.degrees[0].variants;
        const LayerVariant& chosen = recompute ? variants.back() : variants.front();
        chose_smaller = chose_smaller || (recompute && variants.size() > 1);
        compute += chosen.seconds * (recompute && !measured_ ? 4.0 / 3 : 1);
        kept += chosen.memory_per_item;
        fixed += chosen.memory_fixed;
      }
      double memory = fixed + d * kept;
      if (recompute && !measured_) memory = fixed + kept + d * enters;
      if (chose_smaller) memory = fixed + d * std::max(kept, enters);
      if (memory > request_.machine.memory) return 0;
      const int stage = static_cast<int>(run);
      const double reduce = 2.0 * (w - 1) / w * weights / ring(stage) / static_cast<double>(m);
      const double receive = (first > 0 ? enters / hop(stage - 1) : 0) + (end < n ? returns / hop(stage) : 0);
      slowest = std::max({slowest, compute + receive, reduce});
      first = end;
    }
    return w / slowest;
  }

 private:
  // Two levels at most, the outer one slower.
  double bandwidth(int a, int b) const {
    const auto& levels = request_.machine.levels;
    const int group = levels.front().count;
    return levels.size() == 1 || a / group == b / group ? levels.front().bandwidth : levels.back().bandwidth;
  }

  const LayerRequest& request_;
  const LayerTable& graph_;
  bool measured_ = false;
};

LayerRequest two_bw_request(const LayerTable& graph, tests::Dice& dice) {
  LayerRequest request{.graph = &graph};
  request.machine.levels = {
      {.count = static_cast<int>(1 + dice.below(12)), .bandwidth = static_cast<double>(1 + dice.below(9))}};
  if (dice.below(3) == 0) {
    request.machine.levels.front().count = static_cast<int>(1 + dice.below(4));
    request.machine.levels.push_back({.count = static_cast<int>(1 + dice.below(4)), .bandwidth = 0.5});
  }
  if (dice.below(3) > 0) request.machine.memory = static_cast<double>(30 + dice.below(300));
  request.micro_batches = static_cast<int64_t>(1 + dice.below(24));
  request.use_fewer = dice.below(2) == 0;
  request.replication = dice.below(4) > 0;
  request.recompute = dice.below(4) > 0;
  return request;
}

bool recomputes(const LayerCut& plan) {
  return std::ranges::any_of(plan.stages, [](const LayerStage& stage) {
    return stage.recompute || std::ranges::any_of(stage.variants, [](int variant) { return variant > 0; });
  });
}

TEST_CASE("2bw finds the best throughput over all depths, widths and recomputation, and no other") {
  int planned = 0, recomputing = 0, on_fewer = 0, without = 0, together = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const LayerTable graph = chain_of(dice, 1 + seed % 9, seed % 2 == 0);
    const LayerRequest request = two_bw_request(graph, dice);
    const std::optional<double> best = Formula(request).best();
    const auto answer = plan_layers(two_bw(), request);
    REQUIRE(answer.ok() == best.has_value());
    if (!best) {
      ++without;
      CHECK(answer.problems()[0].code == Code::kNoFeasiblePlan);
      continue;
    }
    ++planned;
    CHECK(answer->objective == doctest::Approx(*best).epsilon(1e-12));
    CHECK(answer->bound == answer->objective);
    CHECK(answer->complete);
    CHECK(answer->unit == "1/s");
    CHECK(answer->larger_is_better);
    const LayerCut& plan = answer->plan;
    const int depth = static_cast<int>(plan.stages.size()), width = plan.stages.front().replicas;
    const bool by_pipeline = plan.stages[0].devices.back() != width - 1;
    CHECK(Formula(request).throughput(depth, width, recomputes(plan), by_pipeline) ==
          doctest::Approx(*best).epsilon(1e-12));
    together += by_pipeline;
    CHECK(request.micro_batches / width >= depth);
    recomputing += recomputes(plan);
    on_fewer += depth * width < request.machine.devices();
    CHECK(plan_layers(two_bw(), request)->plan == plan);
  }
  CHECK(planned > 300);
  CHECK(recomputing > 15);
  CHECK(on_fewer > 50);
  CHECK(without > 60);
  CHECK(together > 5);
}

TEST_CASE("more memory or bandwidth never makes the throughput smaller") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const LayerTable graph = chain_of(dice, 8, seed % 2 == 0);
    LayerRequest request = two_bw_request(graph, dice);
    request.machine.memory = 60;
    double before = 0;
    for (int step = 0; step < 6; ++step) {
      const auto answer = plan_layers(two_bw(), request);
      const double now = answer.ok() ? answer->objective : 0;
      CHECK(now >= before * (1 - 1e-12));
      before = now;
      (step % 2 == 0 ? request.machine.memory : request.machine.levels[0].bandwidth) *= 1.5;
    }
  }
}

/// Four layers of 1 s forward and 2 s backward, outputs of 10 bytes, weights of 40 bytes.
LayerTable four_layers() {
  LayerTable graph = tests::layer_table(4, {{0, 1}, {1, 2}, {2, 3}});
  for (Layer& layer : graph.layers) {
    layer.forward_seconds = 1;
    layer.backward_seconds = 2;
    layer.output_bytes = 10;
    layer.weight_bytes = 40;
  }
  for (LayerEdge& edge : graph.edges) edge.bytes = 10;
  return graph;
}

TEST_CASE("an example by hand: reductions beside the micro-batches, recomputation where memory ends") {
  const LayerTable graph = four_layers();
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 4, .bandwidth = 10}};
  request.micro_batches = 8;
  // d = 1: 4 / max(12, 2 * 3/4 * 160 / 10 / 2 = 12); d = 2: 2 / max(6 + 1 + 0, 2 * 1/2 * 80 / 10 / 4 = 2) = 2 / 7;
  // d = 4: 1 / (3 + 2).
  auto answer = plan_layers(two_bw(), request);
  REQUIRE(answer.ok());
  CHECK(answer->objective == doctest::Approx(4.0 / 12).epsilon(1e-12));
  CHECK(answer->plan.stages.size() == 1);
  CHECK(answer->plan.stages[0].replicas == 4);
  // On links half as fast d = 1 waits 24 s for its reduction, and d = 2 takes 6 + 2 s.
  request.machine.levels[0].bandwidth = 5;
  answer = plan_layers(two_bw(), request);
  REQUIRE(answer.ok());
  CHECK(answer->objective == doctest::Approx(2.0 / 8).epsilon(1e-12));
  REQUIRE(answer->plan.stages.size() == 2);
  CHECK(answer->plan.stages[0].devices == std::vector<int>{0, 1});
  CHECK(answer->plan.stages[1].layers == std::vector<LayerId>{LayerId(2), LayerId(3)});
  CHECK_FALSE(recomputes(answer->plan));
  // 2 * 80 + 2 * 20 = 200 bytes; recomputing 160 + 20 + 2 * 10 on the second stage, as much. With 199 bytes only d = 4
  // fits: 80 + 4 * 10 plain.
  request.machine.memory = 200;
  CHECK(plan_layers(two_bw(), request)->plan == answer->plan);
  request.machine.memory = 199;
  answer = plan_layers(two_bw(), request);
  REQUIRE(answer.ok());
  CHECK(answer->plan.stages.size() == 4);
  CHECK(answer->objective == doctest::Approx(1.0 / 7).epsilon(1e-12));
}

TEST_CASE("where activations fill the memory the plan recomputes, and says where no plan fits how much is missing") {
  LayerTable graph = four_layers();
  for (Layer& layer : graph.layers) layer.output_bytes = 100;
  for (LayerEdge& edge : graph.edges) edge.bytes = 1;
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 2, .bandwidth = 1e3}};
  request.replication = false;
  request.micro_batches = 4;
  // Two stages: 160 + 2 * 200 plain, 160 + 200 + 2 * 1 recomputing, in 8 + 1/1000 s instead of 6 + 1/1000 s.
  request.machine.memory = 560;
  CHECK(plan_layers(two_bw(), request)->objective == doctest::Approx(1 / 6.001).epsilon(1e-12));
  request.machine.memory = 559;
  auto answer = plan_layers(two_bw(), request);
  REQUIRE(answer.ok());
  CHECK(answer->plan.stages[0].recompute);
  CHECK(answer->objective == doctest::Approx(1 / 8.001).epsilon(1e-12));
  // A file that does not tell forward from backward: a third more.
  for (Layer& layer : graph.layers) layer.backward_seconds = layer.seconds(), layer.forward_seconds = 0;
  CHECK(plan_layers(two_bw(), request)->objective == doctest::Approx(1 / 8.001).epsilon(1e-12));
  request.recompute = false;
  answer = plan_layers(two_bw(), request);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.problems()[0].message.find(" 1 bytes more are needed") != std::string::npos);
  request.recompute = true;
  request.machine.memory = 361;
  answer = plan_layers(two_bw(), request);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.problems()[0].message.find(" 1 bytes more are needed") != std::string::npos);
}

TEST_CASE("no pipeline is deeper than its micro-batches between two updates") {
  LayerTable graph = four_layers();
  for (Layer& layer : graph.layers) layer.weight_bytes = 80;
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 4, .bandwidth = 0.1}};  // so slow that replicas do not pay
  request.micro_batches = 4;
  CHECK(plan_layers(two_bw(), request)->plan.stages.size() == 4);
  request.micro_batches = 3;  // floor(3 / 2) < 2 and 3 < 4; four pipelines have none
  const auto none = plan_layers(two_bw(), request);
  REQUIRE_FALSE(none.ok());
  CHECK(none.problems()[0].code == Code::kNoFeasiblePlan);
  CHECK(none.problems()[0].message.find("too few") != std::string::npos);
  request.use_fewer = true;
  const auto fewer = plan_layers(two_bw(), request);
  REQUIRE(fewer.ok());
  CHECK(fewer->plan.stages.size() == 1);
  // The checker refuses four stages as well.
  auto answer = *fewer;
  answer.plan.stages.clear();
  for (size_t s = 0; s < 4; ++s)
    answer.plan.stages.push_back({.layers = {LayerId(s)}, .devices = {static_cast<int>(s)}});
  const Diagnostics problems = check_layer_cut(request, answer);
  REQUIRE_FALSE(problems.empty());
  CHECK(problems[0].message.find("two versions of the weights") != std::string::npos);
}

TEST_CASE("what stands around and between the repeated layers goes with them, and no edge leads back") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const size_t layers = 2 + seed % 12;
    LayerTable graph = tests::layer_table(layers, tests::random_layer_edges(dice, layers, 4));
    for (Layer& layer : graph.layers) {
      if (dice.below(2) == 0) layer.label = ModelText("ParallelTransformerLayer");
      layer.forward_seconds = 1;
    }
    const RepeatedLayers parts = repeated_layers(PricedLayers(graph).prices);
    CHECK(parts.before.size() + parts.repeated.size() + parts.behind.size() == layers);
    for (const Ends ends : {Ends::kJoined, Ends::kApart})
      for (size_t count = 1; count <= parts.repeated.size(); ++count) {
        const auto stages = equal_stages(parts, count, ends);
        CHECK(stages.size() == count + (ends == Ends::kApart ? 2 : 0));
        std::vector<size_t> stage_of(layers, stages.size());
        for (size_t s = 0; s < stages.size(); ++s)
          for (const uint32_t layer : stages[s]) stage_of[layer] = s;
        CHECK(std::ranges::none_of(stage_of, [&](size_t s) { return s == stages.size(); }));
        for (const LayerEdge& edge : graph.edges) CHECK(stage_of[edge.from.index()] <= stage_of[edge.to.index()]);
      }
  }
}

TEST_CASE("a tensor crosses once to each stage that reads it, and its gradient comes back from each") {
  // 0 is read by 1, and by 2 and 3 of the next stage; 2 by 3.
  LayerTable graph = tests::layer_table(4, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}});
  for (Layer& layer : graph.layers) layer.forward_seconds = 1;
  for (LayerEdge& edge : graph.edges) edge.bytes = edge.from.index() == 0 ? 7 : 2;
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 2, .bandwidth = 1}};
  request.micro_batches = 4;
  request.replication = false;
  CHECK(plan_layers(two_bw(), request)->objective == doctest::Approx(1.0 / (2 + 7 + 2)).epsilon(1e-12));
  request.charge_traffic = false;
  CHECK(plan_layers(two_bw(), request)->objective == doctest::Approx(1.0 / 2).epsilon(1e-12));
  request.charge_traffic = true;
  request.machine.levels[0].count = 4;
  CHECK(plan_layers(two_bw(), request)->objective == doctest::Approx(1.0 / (1 + 3 * 7)).epsilon(1e-12));
}

TEST_CASE("E2 gives what equal-split gives; without it the quirks of that planner are refused") {
  int planned = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_piper_layers(seed, 2 + seed % 7, true);
    tests::Dice dice(seed);
    LayerRequest request = two_bw_request(graph, dice);
    LayerRequest equal = request;
    request.compat = *parse_compat(two_bw(), "all");
    equal.compat = *parse_compat(*find_planner("equal-split"), "all");
    CHECK(request.has(quirks::kEqualSplitInstead));
    const auto stand_in = plan_layers(two_bw(), request);
    const auto split = plan_layers(*find_planner("equal-split"), equal);
    REQUIRE(stand_in.ok() == split.ok());
    if (!split.ok()) continue;
    ++planned;
    CHECK(stand_in->plan == split->plan);
    CHECK(stand_in->objective == split->objective);
    CHECK(stand_in->unit == split->unit);
  }
  CHECK(planned > 20);
  const LayerTable graph = four_layers();
  for (const char* quirk : {"P1", "P5", "E1"}) {
    LayerRequest request{.graph = &graph};
    request.machine.levels = {{.count = 2, .bandwidth = 1}};
    request.compat = *parse_compat(two_bw(), quirk);
    const auto refused = plan_layers(two_bw(), request);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.problems()[0].code == Code::kUsage);
    CHECK(refused.problems()[0].hint.find("E2") != std::string::npos);
  }
}

TEST_CASE("graphs that the formulas say nothing of are refused by name, and a search that is ended says so") {
  LayerTable graph = four_layers();
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 2, .bandwidth = 1}};
  request.micro_batches = 4;
  const auto problem = [&] {
    const auto refused = plan_layers(two_bw(), request);
    REQUIRE_FALSE(refused.ok());
    return refused.problems()[0];
  };
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const auto first = plan_layers(two_bw(), request);
  REQUIRE(first.ok());
  CHECK_FALSE(first->complete);
  CHECK_FALSE(first->stopped.empty());
  CHECK(first->bound == doctest::Approx(2.0 / 12).epsilon(1e-12));
  CHECK(first->objective <= first->bound);
  request.machine.memory = 1;
  CHECK(problem().code == Code::kInterrupted);
  request.machine.memory = INFINITY;
  request.cancel = nullptr;
  graph.layers[LayerId(1)].degrees = {{.degree = 2, .variants = {{.seconds = 1}}}};
  CHECK(problem().code == Code::kUsage);
  CHECK(problem().message.find("one device") != std::string::npos);
  graph = four_layers();
  graph.layers[LayerId(1)].is_backward = true;
  CHECK(problem().code == Code::kUsage);
  graph.layers[LayerId(1)].is_backward = false;
  for (Layer& layer : graph.layers) layer.forward_seconds = layer.backward_seconds = 0;
  CHECK(problem().message.find("no throughput") != std::string::npos);
}

}  // namespace
}  // namespace graphpipe::partitioner
