#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>

#include "partitioner/piper/planner.h"
#include "tests/support/random_layers.h"

namespace graphpipe::partitioner {
namespace {

using namespace tests;

const PlannerEntry& piper() { return *find_planner("piper"); }

/// Piper's recurrence over all (set, devices, replicas) with all choices of variants, from the formulas alone;
/// `greedy`: with the choice of the original's knapsack, where the variants of a degree have equal weights and
/// collectives.
class PiperExhaustive {
 public:
  explicit PiperExhaustive(const LayerRequest& request, bool greedy = false)
      : request_(request), graph_(*request.graph), devices_(request.machine.devices()), greedy_(greedy) {}

  double best() { return best_before((1u << graph_.layers.size()) - 1, devices_, 0); }

 private:
  /// The layers `rest` on at most `devices`, where later stages have `later` replicas in all.
  double best_before(uint32_t rest, int devices, int later) {
    if (rest == 0) return 0;
    const auto [known, is_new] = known_.try_emplace({rest, devices, later}, INFINITY);
    if (!is_new) return known->second;
    double best = INFINITY;
    for (uint32_t before = 0; before < rest; ++before) {
      if ((before & rest) != before || !is_closed(before)) continue;
      for (int t = 1; t <= 2; ++t)
        for (int d = 1; d * t <= devices; ++d)
          if (request_.micro_batches % d == 0 && later + d <= request_.micro_batches)
            best = std::min(best, std::max(fastest(rest & ~before, t, d, (later + 2 * d - 1) / d),
                                           best_before(before, devices - t * d, later + d)));
    }
    return known_[{rest, devices, later}] = best;
  }

  bool is_closed(uint32_t set) const {
    return std::ranges::all_of(graph_.edges, [&](const LayerEdge& edge) {
      return !(set >> edge.to.index() & 1) || (set >> edge.from.index() & 1);
    });
  }

  double fastest(uint32_t stage, int t, int d, int y) const {
    if (greedy_) return stage_time(stage, greedy_choice(stage, t, y), t, d, y);
    double best = INFINITY;
    for (uint32_t slow = stage;; slow = (slow - 1) & stage) {
      best = std::min(best, stage_time(stage, slow, t, d, y));
      if (slow == 0) return best;
    }
  }

  // Starts with the fastest variants and changes one after the other, least time per byte first, until all fits.
  uint32_t greedy_choice(uint32_t stage, int t, int y) const {
    uint32_t slow = 0;
    double memory = 0;
    std::vector<std::tuple<double, size_t, double>> changes;
    for (const LayerId id : graph_.layer_ids()) {
      const auto& degrees = graph_.layers[id].degrees;
      if (!(stage >> id.index() & 1) || degrees.size() < static_cast<size_t>(t)) continue;
      const auto& variants = degrees[static_cast<size_t>(t) - 1].variants;
      const auto bytes = [&](size_t v) { return variants[v].memory_per_item * y + variants[v].memory_fixed; };
      memory += bytes(0);
      if (variants.size() < 2 || bytes(1) >= bytes(0)) continue;
      const double time = variants[1].seconds - variants[0].seconds;
      if (time == 0) slow |= 1u << id.index(), memory -= bytes(0) - bytes(1);
      else changes.emplace_back(time / (bytes(0) - bytes(1)), id.index(), bytes(0) - bytes(1));
    }
    std::ranges::sort(changes);
    for (const auto& [ratio, layer, saving] : changes) {
      if (memory <= request_.machine.memory) break;
      slow |= 1u << layer;
      memory -= saving;
    }
    return slow;
  }

  double stage_time(uint32_t stage, uint32_t slow, int t, int d, int y) const {
    double time = 0, bytes = 0, memory = 0;
    for (const LayerId id : graph_.layer_ids()) {
      if (!(stage >> id.index() & 1)) continue;
      const auto& degrees = graph_.layers[id].degrees;
      if (degrees.size() < static_cast<size_t>(t)) return INFINITY;
      const auto& variants = degrees[static_cast<size_t>(t) - 1].variants;
      const size_t chosen = slow >> id.index() & 1;
      if (chosen >= variants.size()) return INFINITY;
      const LayerVariant& variant = variants[chosen];
      time += variant.seconds / d;
      bytes += 4.0 * (d - 1) * variant.weight_bytes / (d * static_cast<double>(request_.micro_batches));
      memory += variant.memory_per_item * y + variant.memory_fixed;
      for (const LayerEdge& edge : graph_.edges) {
        const bool from = edge.from == id, to = edge.to == id;
        if ((!from && !to) || (stage >> (from ? edge.to : edge.from).index() & 1)) continue;
        double extra = 0;
        for (const LayerSync& sync : from ? variant.sync_to : variant.sync_from)
          if (sync.neighbour == (from ? edge.to : edge.from)) extra = sync.bytes;
        bytes += 2 * (edge.bytes + extra) / d;
      }
    }
    return memory > request_.machine.memory ? INFINITY : time + bytes / request_.machine.levels.front().bandwidth;
  }

  const LayerRequest& request_;
  const LayerTable& graph_;
  int devices_;
  bool greedy_;
  std::map<std::tuple<uint32_t, int, int>, double> known_;
};

LayerRequest piper_request(const LayerTable& graph, uint64_t seed) {
  tests::Dice dice(seed + 1000);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {
      {.count = static_cast<int>(1 + dice.below(5)), .bandwidth = static_cast<double>(1 + dice.below(9))}};
  request.machine.memory = static_cast<double>(20 + dice.below(80));
  request.micro_batches = static_cast<int64_t>(1 + dice.below(6));
  return request;
}

/// The fastest of all equal runs of a chain of layers with one degree, plain everywhere or with the second variant
/// everywhere: the last n mod p of p runs hold a layer more, each has d replicas and as many micro-batches in flight as
/// there are runs from it on.
double best_equal_runs(const LayerRequest& request) {
  const LayerTable& graph = *request.graph;
  const size_t layers = graph.layers.size(), devices = static_cast<size_t>(request.machine.devices());
  const double bandwidth = request.machine.levels.front().bandwidth;
  const auto micro_batches = static_cast<size_t>(request.micro_batches);
  double best = INFINITY;
  for (size_t variant = 0; variant < 2; ++variant)
    for (size_t p = 1; p <= std::min(layers, devices); ++p)
      for (size_t d = 1; p * d <= std::min(devices, micro_batches); ++d) {
        if (micro_batches % d != 0) continue;
        double slowest = 0;
        size_t first = 0;
        for (size_t run = 0; run < p; ++run) {
          const size_t end = first + layers / p + (run + layers % p >= p ? 1 : 0);
          double seconds = 0, bytes = 0, memory = 0;
          for (size_t i = first; i < end; ++i) {
            const LayerVariant& chosen = graph.layers[LayerId(i)].degrees[0].variants[variant];
            seconds += chosen.seconds;
            bytes += 4 * static_cast<double>(d - 1) * chosen.weight_bytes / static_cast<double>(micro_batches);
            memory += chosen.memory_per_item * static_cast<double>(p - run) + chosen.memory_fixed;
          }
          if (first > 0) bytes += 2 * graph.edges[first - 1].bytes;
          if (end < layers) bytes += 2 * graph.edges[end - 1].bytes;
          if (memory > request.machine.memory) slowest = INFINITY;
          slowest = std::max(slowest, (seconds + bytes / bandwidth) / static_cast<double>(d));
          first = end;
        }
        best = std::min(best, slowest);
      }
  return best;
}

TEST_CASE("piper equals the search over its whole space") {
  int planned = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_piper_layers(seed, 2 + seed % 5, seed % 3 > 0);
    const LayerRequest request = piper_request(graph, seed);
    const double best = PiperExhaustive(request).best();
    const auto answer = plan_layers(piper(), request);
    CHECK(answer.ok() == std::isfinite(best));
    if (!answer.ok()) {
      CHECK(answer.problems()[0].code == Code::kNoFeasiblePlan);
      continue;
    }
    ++planned;
    CHECK(answer->objective == doctest::Approx(best).epsilon(1e-9));
    CHECK(answer->bound == answer->objective);
    CHECK(plan_layers(piper(), request)->plan == answer->plan);
    LayerRequest greedy = request;
    greedy.compat = {"P1"};
    const auto overshot = plan_layers(piper(), greedy);
    REQUIRE(overshot.ok());
    CHECK(overshot->objective >= answer->objective * (1 - 1e-12));
    CHECK(overshot->bound <= best * (1 + 1e-12));
    LayerRequest split = request;
    const auto equal = plan_layers(*find_planner("equal-split"), split);
    if (equal.ok()) CHECK(equal->objective >= answer->objective * (1 - 1e-12));
  }
  CHECK(planned > 60);
}

TEST_CASE("with the greedy knapsack piper equals its own recurrence with that knapsack") {
  int worse = 0, planned = 0;
  double largest = 1;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_piper_layers(seed, 2 + seed % 5, true);
    LayerRequest request = piper_request(graph, seed);
    request.compat = {"P1"};
    const double expected = PiperExhaustive(request, true).best();
    const auto answer = plan_layers(piper(), request);
    CHECK(answer.ok() == std::isfinite(expected));
    if (!answer.ok()) continue;
    ++planned;
    CHECK(answer->objective == doctest::Approx(expected).epsilon(1e-9));
    const double ratio = answer->objective / PiperExhaustive(request).best();
    worse += ratio > 1 + 1e-9;
    largest = std::max(largest, ratio);
  }
  MESSAGE(worse, " of ", planned, " plans of the greedy knapsack are worse, up to ", largest, " times as slow");
  CHECK(planned > 60);
}

TEST_CASE("more memory or bandwidth never makes piper's plan worse") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const LayerTable graph = tests::random_piper_layers(seed, 9, true);
    LayerRequest request = piper_request(graph, seed);
    double before = INFINITY;
    for (int step = 0; step < 5; ++step) {
      const auto answer = plan_layers(piper(), request);
      const double now = answer.ok() ? answer->objective : INFINITY;
      CHECK(now <= before * (1 + 1e-12));
      before = now;
      (step % 2 == 0 ? request.machine.memory : request.machine.levels[0].bandwidth) *= 1.5;
    }
  }
}

TEST_CASE("equal-split equals the search over all equal runs of a chain, and never gets worse with more to spend") {
  int planned = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const size_t layers = 3 + seed % 7;
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t i = 1; i < layers; ++i) edges.emplace_back(i - 1, i);
    LayerTable graph = tests::layer_table(layers, edges);
    for (LayerEdge& edge : graph.edges) edge.bytes = static_cast<double>(1 + dice.below(9));
    for (Layer& layer : graph.layers) {
      LayerVariant plain{.seconds = static_cast<double>(3 + dice.below(9)),
                         .weight_bytes = static_cast<double>(dice.below(9)),
                         .memory_per_item = static_cast<double>(1 + dice.below(9)),
                         .memory_fixed = static_cast<double>(dice.below(5))};
      LayerVariant again = plain;
      again.seconds += 2;
      again.memory_per_item = 0;
      layer.degrees = {{.degree = 1, .variants = {plain, again}}};
      layer.forward_seconds = plain.seconds;
    }
    LayerRequest request{.graph = &graph};
    request.machine.levels = {{.count = static_cast<int>(1 + dice.below(8)), .bandwidth = 5}};
    request.machine.memory = static_cast<double>(10 + dice.below(90));
    request.micro_batches = 12;
    const auto answer = plan_layers(*find_planner("equal-split"), request);
    const double best = best_equal_runs(request);
    CHECK(answer.ok() == std::isfinite(best));
    if (!answer.ok()) continue;
    ++planned;
    CHECK(answer->objective == doctest::Approx(best).epsilon(1e-12));
    request.machine.memory *= 2;
    CHECK(plan_layers(*find_planner("equal-split"), request)->objective <= answer->objective);
    request.machine.levels[0].bandwidth *= 2;
    CHECK(plan_layers(*find_planner("equal-split"), request)->objective <= answer->objective);
  }
  CHECK(planned > 30);
}

TEST_CASE("what does not fit says how much is missing; a search that is ended says so") {
  const LayerTable graph = tests::random_piper_layers(3, 6, true);
  LayerRequest request = piper_request(graph, 3);
  request.machine.memory = 1;
  const auto nothing = plan_layers(piper(), request);
  REQUIRE_FALSE(nothing.ok());
  CHECK(nothing.problems()[0].code == Code::kNoFeasiblePlan);
  CHECK(nothing.problems()[0].message.find("bytes more are needed") != std::string::npos);
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const auto ended = plan_layers(piper(), request);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.problems()[0].code == Code::kInterrupted);
}

TEST_CASE("a search that may try no more pairs has not proven that nothing fits") {
  const LayerTable graph = tests::equal_branches(1, 12);
  int cut_short = 0;
  for (const double memory : {3e7, 6e7, 1e8, 2e8, 4e8}) {
    CAPTURE(memory);
    LayerRequest request{.graph = &graph};
    request.machine.levels = {{.count = 4, .bandwidth = 1e9}};
    request.machine.memory = memory;
    request.micro_batches = 16;
    const auto whole = plan_layers(piper(), request);
    request.max_pairs = 0;
    const auto ended = plan_layers(piper(), request);
    if (!whole.ok() || whole->plan.stages.size() < 2) continue;
    ++cut_short;
    if (ended.ok()) {
      CHECK_FALSE(ended->complete);
      CHECK(ended->stopped.find("as many pairs of sets as it may") != std::string::npos);
    } else {
      CHECK(ended.problems()[0].code == Code::kInterrupted);
    }
  }
  CHECK(cut_short > 0);
}

TEST_CASE("every planner of layers has a sound plan with a bound even where it must stop at once") {
  const LayerTable graph = tests::equal_branches(12, 9);
  const std::atomic<bool> cancel = true;
  for (const PlannerEntry& row : planners()) {
    if (row.search == nullptr) continue;
    CAPTURE(row.name);
    LayerRequest request{.graph = &graph};
    request.cancel = &cancel;
    request.machine.levels = {{.count = 4, .bandwidth = 1e9}};
    request.micro_batches = 16;
    const auto answer = plan_layers(row, request);  // checked by check_unit_plan inside
    REQUIRE(answer.ok());
    CHECK(answer->bound > 0);
    CHECK(std::isfinite(answer->gap()));
    request.machine.levels.push_back({.count = 2, .bandwidth = 1e8});
    CHECK(plan_layers(row, request).ok());
  }
}

TEST_CASE("a wide graph gets a plan with a bound") {
  const LayerTable graph = tests::equal_branches(8, 4);
  LayerRequest request{.graph = &graph};
  request.machine.levels = {{.count = 8, .bandwidth = 1e9}};
  request.micro_batches = 32;
  request.memory_budget = 20e6;
  request.replication = false;
  const auto answer = plan_layers(piper(), request);
  REQUIRE(answer.ok());
  CHECK(answer->bound >= 12 * (1 - 1e-12));
  CHECK(answer->objective <= 12.1);
}

}  // namespace
}  // namespace graphpipe::partitioner
