// Planners on machines of several hosts, between which links are slower than inside.

#include <doctest/doctest.h>

#include "partitioner/planner.h"
#include "tests/support/case_count.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

/// Hosts of four devices.
ir::Cluster hosts(int count, double between_hosts) {
  ir::Cluster cluster = ir::equal_devices(4 * count);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                    {.group = 4 * count, .latency = Seconds(0), .bandwidth = BytesPerSecond(between_hosts)}};
  return cluster;
}

double step_of(std::string_view planner, const ir::PlanGraph& graph, const ir::Cluster& cluster,
               bool replication = true) {
  const PlanRequest request{.graph = &graph, .cluster = &cluster, .replication = replication};
  const auto answer = plan(planner, request);  // checked by check_plan inside
  REQUIRE(answer.ok());
  return answer->candidates.front().step_seconds;
}

constexpr const char* kSearches[] = {"graphpipe", "sequential"};

}  // namespace

TEST_CASE("stages of one host are cut where the links inside allow it, whatever those between hosts do") {
  // Eight nodes of 3 s a sample for each of eight devices; only the fourth sends little enough to leave its host.
  std::vector<std::vector<size_t>> predecessors(8);
  std::vector<tests::NodePrice> prices;
  for (size_t i = 0; i < predecessors.size(); ++i) {
    if (i > 0) predecessors[i] = {i - 1};
    prices.push_back({.seconds = 1, .bytes = i == 3 ? 1.0 : 1000.0});
  }
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(64));
  for (const char* name : kSearches) {
    CAPTURE(name);
    CHECK(step_of(name, graph, hosts(2, 100), false) == doctest::Approx(3 * (64 + 7)).epsilon(0.02));
  }
}

TEST_CASE("more hosts never make a plan slower: the searches may leave them idle") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 6 + seed % 6, Samples(16));
    const double bandwidth = seed % 2 == 0 ? 1 : 0.1;
    for (const char* name : kSearches) {
      CAPTURE(name);
      const double one = step_of(name, graph, first_devices(hosts(2, bandwidth), 4));
      CHECK(step_of(name, graph, hosts(2, bandwidth)) <= one * (1 + 1e-9));
      CHECK(step_of(name, graph, hosts(4, bandwidth)) <= one * (1 + 1e-9));
    }
  }
}

TEST_CASE("exhaustive search tries equal devices in all hosts, and times more plans than other searches") {
  // Two chains of two nodes each, whose numbers alternate: in their order every stage would send to another host.
  const ir::PlanGraph graph =
      tests::plan_graph({{}, {}, {0}, {1}}, std::vector(4, tests::NodePrice{.bytes = 1000}), Samples(8));
  const auto two_hosts = [](double between_hosts) {
    ir::Cluster cluster = ir::equal_devices(4);
    cluster.levels = {{.group = 2, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                      {.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(between_hosts)}};
    return cluster;
  };
  CHECK(step_of("exhaustive", graph, two_hosts(1), false) ==
        doctest::Approx(step_of("exhaustive", graph, two_hosts(1e9), false)));
  const ir::Cluster cluster = two_hosts(1e9);
  int timed = 0;
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  request.evaluate = [&timed](const ir::Assignment&) { return static_cast<double>(1000 - ++timed); };
  const auto answer = plan("exhaustive", request);
  REQUIRE(answer.ok());
  CHECK(timed > 50);
  CHECK(answer->candidates.front().step_seconds == 1000 - timed);
}

TEST_CASE("auto finds what exhaustive search finds in graphs of many nodes and few groups") {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    // Six groups of two nodes.
    ir::PlanGraph graph = tests::random_sp_graph(seed, 12, Samples(8));
    for (size_t node = 0; node < graph.nodes.size(); node += 2)
      graph.colocated.push_back({ir::PlanNodeId(node), ir::PlanNodeId(node + 1)});
    ir::Cluster cluster = ir::equal_devices(4);
    cluster.levels = {{.group = 2, .latency = Seconds(1), .bandwidth = BytesPerSecond(2)},
                      {.group = 4, .latency = Seconds(4), .bandwidth = BytesPerSecond(1)}};
    const PlanRequest request{.graph = &graph, .cluster = &cluster, .micro_batch = Samples(2)};
    const auto all = plan("exhaustive", request), automatic = plan("auto", request);
    REQUIRE(all.ok());
    REQUIRE(automatic.ok());
    CHECK(automatic->candidates.front().step_seconds <= all->candidates.front().step_seconds * (1 + 1e-9));
  }
}

TEST_CASE("auto is never behind the searches that keep stages in hosts, also where a size or stages are asked for") {
  for (uint64_t seed = 0; seed < tests::case_count(10, 24); ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 14 + seed % 6, Samples(16));
    const ir::Cluster cluster = hosts(2, seed % 2 == 0 ? 1 : 0.1);
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    if (seed % 3 == 0) request.stages = 4;
    else request.micro_batch = Samples(2);
    const auto automatic = plan("auto", request);
    REQUIRE(automatic.ok());
    for (const char* name : kSearches) {
      CAPTURE(name);
      const auto answer = plan(name, request);
      REQUIRE(answer.ok());
      CHECK(automatic->candidates.front().step_seconds <= answer->candidates.front().step_seconds * (1 + 1e-9));
    }
  }
}
