#include "tests/support/paper_models.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <span>

#include "ir/stage_graph.h"
#include "partitioner/graph/sp_decompose.h"
#include "partitioner/graphpipe/search_space.h"
#include "partitioner/planner.h"
#include "tests/support/case_count.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

TEST_CASE("the models of GraphPipe's evaluation are sound and series-parallel") {
  for (const ir::PlanGraph& graph : {tests::mmt(64, 2, 2), tests::dlrm(64), tests::candle_uno(64)}) {
    CHECK(verify_plan_graph(graph).ok());
    CHECK(decompose(group_nodes(graph).graph).has_value());
  }
}

TEST_CASE("planned on several devices they beat one device, and auto is never worse than its parts") {
  const ir::PlanGraph models[] = {tests::mmt(32, 2, 2), tests::candle_uno(256), tests::dlrm(256)};
  for (const ir::PlanGraph& graph : std::span(models).first(tests::case_count(1, std::size(models)))) {
    const ir::Cluster cluster = tests::summit(4), one = tests::summit(1);
    const auto best = plan("auto", {.graph = &graph, .cluster = &cluster});
    REQUIRE(best.ok());
    for (const char* name : {"graphpipe", "sequential"}) {
      const auto part = plan(name, {.graph = &graph, .cluster = &cluster});
      REQUIRE(part.ok());
      CHECK(best->candidates.front().step_seconds <= part->candidates.front().step_seconds);
    }
    const auto alone = plan("auto", {.graph = &graph, .cluster = &one, .limit_memory = false});
    REQUIRE(alone.ok());
    CHECK(best->candidates.front().step_seconds < alone->candidates.front().step_seconds);
  }
}

TEST_CASE("four equal branches on eight devices run beside each other") {
  const ir::PlanGraph graph = tests::mmt(128, 4, 2);
  const ir::Cluster cluster = tests::summit(8);
  const auto answer = plan("graphpipe", {.graph = &graph, .cluster = &cluster, .replication = false});
  REQUIRE(answer.ok());
  ir::Assignment assignment = answer->candidates.front().assignment;
  const auto stages = build_stage_graph(graph, assignment);
  std::vector<size_t> depth(stages->stages.size(), 1);
  for (const ir::StageEdge& edge : stages->edges)
    depth[edge.to.index()] = std::max(depth[edge.to.index()], depth[edge.from.index()] + 1);
  CHECK(stages->stages.size() == 8);
  CHECK(*std::max_element(depth.begin(), depth.end()) <= 3);
}
