#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cost/in_flight.h"
#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "partitioner/check_plan.h"
#include "partitioner/graphpipe/pipeline_dp.h"
#include "partitioner/graphpipe/search_space.h"
#include "partitioner/planner.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::PlanNodeId;
using ir::StageId;

namespace {

using Mask = uint32_t;

Mask mask_of(const std::vector<PlanNodeId>& nodes) {
  Mask mask = 0;
  for (PlanNodeId node : nodes) mask |= Mask{1} << node.index();
  return mask;
}

Mask mask_of(const SpTree& tree) {
  Mask mask = 0;
  for (size_t item : tree.vertices()) mask |= Mask{1} << item;
  return mask;
}

std::vector<SpTree> chain_of(const SpTree& tree) {
  return tree.kind == SpTree::Kind::kSeries ? tree.children : std::vector<SpTree>{tree};
}

/// The parts of a parallel block that a stage may take at its lower (tail) or upper (head) end.
std::vector<Mask> parts(const SpTree& block, bool tail) {
  std::vector<Mask> found;
  if (block.kind != SpTree::Kind::kParallel) return found;
  for (size_t first = 0; first < block.children.size(); ++first) {
    Mask mask = 0;
    for (size_t last = first; last < block.children.size(); ++last) {
      mask |= mask_of(block.children[last]);
      if (last - first + 1 < block.children.size()) found.push_back(mask);
    }
    const std::vector<SpTree> branch = chain_of(block.children[first]);
    for (size_t cut = 1; cut < branch.size(); ++cut) {
      Mask piece = 0;
      for (size_t i = 0; i < branch.size(); ++i)
        if ((i >= cut) == tail) piece |= mask_of(branch[i]);
      found.push_back(piece);
    }
  }
  return found;
}

/// Every stage of the declared space (search_space.h), by the words of its comment.
void legal_stages(const SpTree& tree, std::set<Mask>& found) {
  const std::vector<SpTree> chain = chain_of(tree);
  for (size_t first = 0; first < chain.size(); ++first) {
    Mask run = 0;
    for (size_t last = first; last < chain.size(); ++last) {
      run |= mask_of(chain[last]);
      found.insert(run);
      if (first > 0)
        for (Mask part : parts(chain[first - 1], true)) found.insert(run | part);
      if (last + 1 < chain.size())
        for (Mask part : parts(chain[last + 1], false)) found.insert(run | part);
    }
    if (chain[first].kind != SpTree::Kind::kParallel) continue;
    const auto& branches = chain[first].children;
    for (size_t a = 0; a < branches.size(); ++a) {
      Mask group = 0;
      for (size_t b = a; b < branches.size(); ++b) {
        group |= mask_of(branches[b]);
        if (b > a) found.insert(group);
      }
      legal_stages(branches[a], found);
    }
  }
}

/// Every plan made of the given stages, for one micro-batch size.
class BruteForce {
 public:
  BruteForce(const ir::PlanGraph& graph, const ir::Cluster& cluster, std::set<Mask> stages, Samples micro_batch)
      : graph_(graph), cluster_(cluster), stages_(std::move(stages)), micro_batch_(micro_batch) {
    cover(0);
  }
  struct Plan {
    ir::StageGraph stages;
    double objective;
  };
  std::vector<Plan> plans;

  double best() const {
    double smallest = std::numeric_limits<double>::infinity();
    for (const Plan& plan : plans) smallest = std::min(smallest, plan.objective);
    return smallest;
  }
  /// Whether some plan has every stage at or below t and, as far as it follows from each stage alone, fits with the
  /// in-flight numbers of the period t.
  bool probe(double t) const {
    for (const Plan& plan : plans) {
      if (plan.objective > t) continue;
      const auto flight = cost::in_flight_at(plan.stages, cost::stage_costs(plan.stages, cluster_), t);
      const auto fits = [&](StageId stage) {
        const Bytes memory = cluster_.devices[plan.stages.stages[stage].choice.devices.front()].memory;
        return cost::stage_memory(plan.stages, stage, flight[stage]).total() <= memory;
      };
      bool all_fit = true;
      for (StageId stage : plan.stages.stage_ids()) all_fit = all_fit && fits(stage);
      if (all_fit) return true;
    }
    return false;
  }

 private:
  void cover(Mask covered) {
    const Mask all = (Mask{1} << graph_.nodes.size()) - 1;
    if (covered == all) return replicate(std::vector<int>(chosen_.size(), 1), 0);
    if (chosen_.size() == cluster_.devices.size()) return;
    const Mask lowest = ~covered & (covered + 1);
    for (Mask stage : stages_)
      if ((stage & lowest) != 0 && (stage & covered) == 0) {
        chosen_.push_back(stage);
        cover(covered | stage);
        chosen_.pop_back();
      }
  }

  void replicate(std::vector<int> devices, size_t stage) {
    int used = 0;
    for (int d : devices) used += d;
    if (used > static_cast<int>(cluster_.devices.size())) return;
    if (stage < devices.size()) {
      for (int d = 1; d <= micro_batch_.count; ++d) {
        devices[stage] = d;
        if (d > static_cast<int>(cluster_.devices.size())) break;
        replicate(devices, stage + 1);
      }
      return;
    }
    ir::Assignment assignment;
    assignment.stage_of.resize(graph_.nodes.size());
    size_t next = 0;
    for (size_t s = 0; s < chosen_.size(); ++s) {
      ir::StageChoice choice{.micro_batch = micro_batch_};
      for (PlanNodeId node : graph_.node_ids())
        if ((chosen_[s] >> node.index() & 1) != 0 && graph_.nodes[node].scope == ir::SampleScope::kBatch)
          choice.micro_batch = graph_.batch;
      for (int d = 0; d < devices[s]; ++d) choice.devices.push_back(ir::DeviceId(next++));
      assignment.choice.push_back(choice);
      for (PlanNodeId node : graph_.node_ids())
        if (chosen_[s] >> node.index() & 1) assignment.stage_of[node] = StageId(s);
    }
    auto built = build_stage_graph(graph_, assignment);
    if (built.ok()) plans.push_back({*built, cost::bottleneck_time_per_sample(*built, cluster_)});
  }

  const ir::PlanGraph& graph_;
  const ir::Cluster& cluster_;
  const std::set<Mask> stages_;
  const Samples micro_batch_;
  std::vector<Mask> chosen_;
};

/// Three devices on which transfers and reductions matter beside the prices of random graphs.
ir::Cluster small_cluster(int devices, double bandwidth = 4) {
  ir::Cluster cluster = ir::equal_devices(devices);
  cluster.levels = {{.group = devices, .latency = Seconds(0.125), .bandwidth = BytesPerSecond(bandwidth)}};
  return cluster;
}

SpTree tree_of(const ir::PlanGraph& graph) { return *decompose(group_nodes(graph).graph); }

}  // namespace

TEST_CASE("on series-parallel graphs graphpipe finds the objective of brute force over its declared space") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_sp_graph(seed, 4 + seed % 6, Samples(4));
    if (seed % 2 == 1) graph = tests::with_batch_nodes(std::move(graph), seed);
    const ir::Cluster cluster = small_cluster(3);
    std::set<Mask> stages;
    legal_stages(tree_of(graph), stages);
    for (int64_t size : {1, 4}) {
      CAPTURE(size);
      const auto answer = plan(
          "graphpipe", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(size), .limit_memory = false});
      REQUIRE(answer.ok());
      const BruteForce brute(graph, cluster, stages, Samples(size));
      CHECK(answer->objective == doctest::Approx(brute.best()).epsilon(1e-9));
      CHECK(answer->bound <= answer->objective * (1 + 1e-9));
    }
  }
}

TEST_CASE("with memory, a probe says yes exactly where brute force finds a plan that fits") {
  int yes = 0, no = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_sp_graph(seed, 4 + seed % 5, Samples(8));
    if (seed % 4 > 1) graph = tests::with_batch_nodes(std::move(graph), seed);
    graph.versions = static_cast<ir::WeightVersions>(seed % 3);
    ir::Cluster cluster = small_cluster(3);
    const Samples size(1 + static_cast<int64_t>(seed % 2));
    std::set<Mask> stages;
    legal_stages(tree_of(graph), stages);
    const NodeGroups items = group_nodes(graph);
    const SearchSpace space = space_of_tree(tree_of(graph), items, 0);
    for (int64_t memory : {40, 80, 120, 200}) {
      CAPTURE(memory);
      for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
      const BruteForce brute(graph, cluster, stages, size);
      StageEvaluator evaluator(graph, cluster, size, 1, 3);
      Deadline deadline(1e9, nullptr);
      PipelineDp search(space, {&evaluator}, graph.batch, deadline);
      for (double factor : {1.0, 1.3, 2.0, 4.0}) {
        const double t = brute.best() * factor * (1 + 1e-12);
        const bool found =
            search.probe(t, {.devices = 3, .memory = static_cast<double>(memory), .blind = false}).has_value();
        CHECK(found == brute.probe(t));
        ++(found ? yes : no);
      }
    }
  }
  CHECK(yes > 50);
  CHECK(no > 50);
}

TEST_CASE("sequential finds the best cut of its line") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_dag(seed, 4 + seed % 6, 3, Samples(4));
    if (seed % 2 == 1) graph = tests::with_batch_nodes(std::move(graph), seed);
    const ir::Cluster cluster = small_cluster(3);
    const SearchSpace line = space_of_line(group_nodes(graph), 0);
    std::set<Mask> stages;
    const auto& elements = line.chains.back().elements;
    for (size_t first = 0; first < elements.size(); ++first) {
      Mask run = 0;
      for (size_t last = first; last < elements.size(); ++last) stages.insert(run |= mask_of(elements[last].nodes));
    }
    const auto answer =
        plan("sequential", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(2), .limit_memory = false});
    REQUIRE(answer.ok());
    CHECK(answer->objective == doctest::Approx(BruteForce(graph, cluster, stages, Samples(2)).best()).epsilon(1e-9));
  }
}

TEST_CASE("no planner beats exhaustive search, and its plans pass the checker") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_dag(seed, 6, 3, Samples(4));
    if (seed % 2 == 1) graph.execution = ir::Execution::kChain;
    const ir::Cluster cluster = small_cluster(3);
    const PlanRequest request{.graph = &graph, .cluster = &cluster, .micro_batch = Samples(2)};
    const auto all = plan("exhaustive", request);
    REQUIRE(all.ok());
    for (const char* name : {"auto", "graphpipe", "sequential", "equal-split", "model-parallel", "data-parallel"}) {
      CAPTURE(name);
      const auto answer = plan(name, request);
      REQUIRE(answer.ok());
      CHECK(all->objective <= answer->objective * (1 + 1e-9));
      CHECK(all->candidates.front().step_seconds <= answer->candidates.front().step_seconds * (1 + 1e-9));
      CHECK(answer->bound <= all->objective * (1 + 1e-9));
    }
  }
}

TEST_CASE("the bound on every plan counts the updates of its weights, and holds") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_dag(seed, 6, 3, Samples(4));
    const ir::Cluster cluster = small_cluster(3);
    const double without = cost::plan_bound(graph, cluster).step(graph.batch);
    for (ir::WeightGroup& group : graph.weight_groups) group.update_passes *= 1e11;
    const cost::PlanBound bound = cost::plan_bound(graph, cluster);
    CHECK(bound.updates > without / 10);
    CHECK(bound.step(graph.batch) > without);
    const auto all = plan("exhaustive", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(2)});
    REQUIRE(all.ok());
    CHECK(bound.step(graph.batch) <= all->candidates.front().step_seconds * (1 + 1e-9));
  }
}

TEST_CASE("more stages than there are pieces to cut are refused, in words") {
  const ir::PlanGraph graph = tests::random_dag(1, 4, 3, Samples(4));
  const ir::Cluster cluster = small_cluster(8);
  for (const char* name : {"auto", "equal-split", "model-parallel"}) {
    CAPTURE(name);
    const auto answer = plan(name, {.graph = &graph, .cluster = &cluster, .stages = 7});
    REQUIRE(!answer.ok());
    CHECK(answer.problems().front().code == Code::kNoFeasiblePlan);
  }
}

TEST_CASE("more devices, memory or bandwidth never give a worse objective") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 9, Samples(4));
    for (const char* name : {"graphpipe", "sequential"}) {
      CAPTURE(name);
      const auto objective = [&](int devices, double bandwidth) {
        const ir::Cluster cluster = small_cluster(devices, bandwidth);
        return plan(name, {.graph = &graph, .cluster = &cluster, .limit_memory = false})->objective;
      };
      CHECK(objective(4, 4) <= objective(3, 4) * (1 + 1e-9));
      CHECK(objective(3, 8) <= objective(3, 4) * (1 + 1e-9));
      const auto with_memory = [&](int64_t memory) {
        ir::Cluster cluster = small_cluster(3);
        for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
        const auto answer = plan(name, {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(1)});
        return answer.ok() ? answer->objective : std::numeric_limits<double>::infinity();
      };
      CHECK(with_memory(1000) <= with_memory(150) * (1 + 1e-9));
    }
  }
}

TEST_CASE("the same request gives the same plan, and the order of independent nodes does not matter") {
  const ir::PlanGraph graph = tests::two_branches_graph(4, {.seconds = 1, .bytes = 1}, Samples(8));
  const ir::Cluster cluster = small_cluster(4);
  const PlanRequest request{.graph = &graph, .cluster = &cluster};
  const auto first = plan("auto", request), again = plan("auto", request);
  CHECK(first->candidates.front().assignment == again->candidates.front().assignment);
  // The same graph with the branches' nodes alternating.
  std::vector<std::vector<size_t>> predecessors{{}, {}, {0}, {1}, {2}, {3}, {4}, {5}, {6, 7}};
  const ir::PlanGraph woven = tests::plan_graph(predecessors, {{.seconds = 1, .bytes = 1}}, Samples(8));
  const auto other = plan("auto", {.graph = &woven, .cluster = &cluster});
  CHECK(other->objective == first->objective);
  CHECK(other->candidates.front().step_seconds == doctest::Approx(first->candidates.front().step_seconds));
}

TEST_CASE("GraphPipe's case study: two branches on 8 devices, the join in a branch's last stage, depth 5, not 8") {
  // Two branches of four equal layers and a light join.
  std::vector<std::vector<size_t>> predecessors{{}, {0}, {1}, {2}, {}, {4}, {5}, {6}, {3, 7}};
  std::vector<tests::NodePrice> prices(9, {.seconds = 1, .bytes = 1e-3});
  prices.back().seconds = 1e-3;
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(32));
  const ir::Cluster cluster = ir::equal_devices(8);
  const auto answer =
      plan("graphpipe", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(1), .replication = false});
  REQUIRE(answer.ok());
  CHECK(answer->objective == doctest::Approx(3.003).epsilon(1e-6));
  const auto best = std::find_if(answer->candidates.begin(), answer->candidates.end(),
                                 [&](const PlanCandidate& c) { return c.objective == answer->objective; });
  ir::Assignment assignment = best->assignment;
  const auto stages = build_stage_graph(graph, assignment);
  CHECK(stages->stages.size() == 8);
  // The join is with a branch's last layer; the longest path of stages is 4 layers and the other branch's end.
  const StageId join = assignment.stage_of[PlanNodeId(8u)];
  CHECK((join == assignment.stage_of[PlanNodeId(3u)] || join == assignment.stage_of[PlanNodeId(7u)]));
  std::vector<size_t> depth(8, 1);
  for (const ir::StageEdge& edge : stages->edges)
    depth[edge.to.index()] = std::max(depth[edge.to.index()], depth[edge.from.index()] + 1);
  CHECK(*std::max_element(depth.begin(), depth.end()) == 5);
}

TEST_CASE("requests steer: stages, micro-batch, replicas, replication") {
  const ir::PlanGraph graph = tests::two_branches_graph(4, {.seconds = 1, .bytes = 1}, Samples(8));
  const ir::Cluster cluster = ir::equal_devices(4);
  for (int stages = 1; stages <= 4; ++stages) {
    CAPTURE(stages);
    for (const char* name : {"auto", "graphpipe", "sequential", "equal-split", "model-parallel"}) {
      const auto answer = plan(name, {.graph = &graph, .cluster = &cluster, .stages = stages});
      REQUIRE(answer.ok());
      for (const PlanCandidate& candidate : answer->candidates)
        CHECK(candidate.assignment.choice.size() == static_cast<size_t>(stages));
    }
  }
  const auto fixed = plan("auto", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(4)});
  for (const ir::StageChoice& choice : fixed->candidates.front().assignment.choice)
    CHECK(choice.micro_batch == Samples(4));
  const auto forced = plan("auto", {.graph = &graph, .cluster = &cluster, .stages = 2, .replicas = {{1, 2}}});
  REQUIRE(forced.ok());
  CHECK(forced->candidates.front().assignment.choice[StageId(0u)].devices.size() == 1);
  CHECK(forced->candidates.front().assignment.choice[StageId(1u)].devices.size() == 2);
  const auto single = plan("auto", {.graph = &graph, .cluster = &cluster, .replication = false});
  for (const ir::StageChoice& choice : single->candidates.front().assignment.choice) CHECK(choice.devices.size() == 1);
  CHECK(plan("auto", {.graph = &graph, .cluster = &cluster, .stages = 9}).problems().front().code == Code::kUsage);
  CHECK(plan("nonsense", {.graph = &graph, .cluster = &cluster}).problems().front().code == Code::kUsage);
  const auto too_many = plan("auto", {.graph = &graph, .cluster = &cluster, .replicas = {{0, 9}}});
  CHECK(too_many.problems().front().code == Code::kUsage);
}

TEST_CASE("model parallelism: one stage per device, no replicas, the batch as one micro-batch unless one is named") {
  const ir::PlanGraph graph = tests::random_sp_graph(5, 12, Samples(8));
  const ir::Cluster cluster = small_cluster(4);
  for (int64_t size : {0, 2}) {
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    if (size > 0) request.micro_batch = Samples(size);
    const auto answer = plan("model-parallel", request);
    REQUIRE(answer.ok());
    REQUIRE(answer->candidates.size() == 1);
    CHECK(answer->candidates.front().assignment.choice.size() == 4);
    for (const ir::StageChoice& choice : answer->candidates.front().assignment.choice) {
      CHECK(choice.devices.size() == 1);
      CHECK(choice.micro_batch == (size > 0 ? Samples(size) : graph.batch));
    }
  }
}

TEST_CASE("stages may have different micro-batch sizes with equal rounds, never a worse step than equal sizes") {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 7, Samples(8));
    const ir::Cluster cluster = small_cluster(3);
    const auto equal = plan("graphpipe", {.graph = &graph, .cluster = &cluster});
    const auto mixed = plan("graphpipe", {.graph = &graph, .cluster = &cluster, .micro_batch_per_stage = true});
    REQUIRE(mixed.ok());
    CHECK(mixed->candidates.front().step_seconds <= equal->candidates.front().step_seconds);
    for (const PlanCandidate& candidate : mixed->candidates)
      for (const ir::StageChoice& choice : candidate.assignment.choice)
        CHECK(choice.micro_batch.count * choice.k ==
              candidate.assignment.choice[StageId(0u)].micro_batch.count * candidate.assignment.choice[StageId(0u)].k);
  }
}

TEST_CASE("colocated nodes stay together, and what mixes samples is not replicated") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_dag(seed, 8, 3, Samples(4));
    graph.colocated = {{PlanNodeId(1u), PlanNodeId(6u)}};
    graph.nodes[PlanNodeId(3u)].scope = ir::SampleScope::kMicroBatch;
    const ir::Cluster cluster = small_cluster(3);
    for (const char* name : {"graphpipe", "sequential", "exhaustive"}) {
      CAPTURE(name);
      const auto answer = plan(name, {.graph = &graph, .cluster = &cluster});  // checked by check_plan inside
      REQUIRE(answer.ok());
      const ir::Assignment& best = answer->candidates.front().assignment;
      CHECK(best.stage_of[PlanNodeId(1u)] == best.stage_of[PlanNodeId(6u)]);
    }
  }
}

TEST_CASE("weights that take longer to update than all else are spread over the devices") {
  ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 0}, Samples(4));
  for (const size_t node : {0, 1})
    graph.nodes[PlanNodeId(node)].weights = {graph.weight_groups.push_back({.bytes = Bytes(1'000'000)})};
  ir::Cluster cluster = ir::equal_devices(2);
  cluster.runtime.update_byte = 1;
  for (const char* name : {"graphpipe", "sequential", "exhaustive", "auto"}) {
    CAPTURE(name);
    const auto answer = plan(name, {.graph = &graph, .cluster = &cluster});  // checked by check_plan inside
    REQUIRE(answer.ok());
    const ir::Assignment& best = answer->candidates.front().assignment;
    CHECK(best.stage_of[PlanNodeId(0u)] != best.stage_of[PlanNodeId(1u)]);
    CHECK(answer->candidates.front().step_seconds < 1.1e6);
  }
}

TEST_CASE("a search can be cancelled, and then says what it has or that it has nothing") {
  const ir::PlanGraph graph = tests::chain_graph(40, {}, Samples(64));
  const ir::Cluster cluster = ir::equal_devices(8);
  const std::atomic<bool> cancel = true;
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  request.cancel = &cancel;
  const auto answer = plan("graphpipe", request);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.problems().front().code == Code::kInterrupted);
}

TEST_CASE("a manual plan is used as given, or refused with its problems") {
  const ir::PlanGraph graph = tests::chain_graph(3, {}, Samples(4));
  const ir::Cluster cluster = ir::equal_devices(2);
  ir::Assignment assignment;
  assignment.stage_of = IdMap<PlanNodeId, StageId>(3, StageId(0u));
  assignment.stage_of[PlanNodeId(2u)] = StageId(1u);
  assignment.choice.push_back({.devices = {ir::DeviceId(1u)}, .micro_batch = Samples(2)});
  assignment.choice.push_back({.devices = {ir::DeviceId(0u)}, .micro_batch = Samples(4)});
  const auto used = plan("manual", {.graph = &graph, .cluster = &cluster, .manual = &assignment});
  REQUIRE(used.ok());
  CHECK(used->candidates.front().assignment == assignment);
  ir::Assignment cycle = assignment;
  cycle.stage_of[PlanNodeId(0u)] = StageId(1u);
  cycle.stage_of[PlanNodeId(1u)] = StageId(0u);
  CHECK_FALSE(plan("manual", {.graph = &graph, .cluster = &cluster, .manual = &cycle}).ok());
  ir::Assignment beyond = assignment;
  beyond.choice[StageId(0u)].devices = {ir::DeviceId(7u)};
  CHECK_FALSE(plan("manual", {.graph = &graph, .cluster = &cluster, .manual = &beyond}).ok());
}
