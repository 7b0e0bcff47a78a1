// The baseline of data parallelism: which devices it uses.

#include <doctest/doctest.h>

#include "partitioner/planner.h"
#include "tests/support/plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

TEST_CASE("data parallelism uses every device that some micro-batch feeds, or the replicas that are asked for") {
  // Messages so slow that fewer replicas are faster.
  const ir::PlanGraph graph = tests::chain_graph(3, {.seconds = 1e-6, .bytes = 1, .weight_bytes = 1 << 30}, Samples(8));
  const ir::Cluster cluster = ir::equal_devices(6);
  const auto replicas = [&](PlanRequest request) {
    request.graph = &graph;
    request.cluster = &cluster;
    request.limit_memory = false;
    const auto answer = plan("data-parallel", request);
    REQUIRE(answer.ok());
    return answer->candidates.front().assignment.choice[ir::StageId(0u)].devices.size();
  };
  CHECK(replicas({}) == 6);
  CHECK(replicas({.micro_batch = Samples(4)}) == 4);
  CHECK(replicas({.micro_batch = Samples(4), .replicas = {{.stage = 0, .replicas = 6}}}) == 6);
  CHECK(replicas({.replicas = {{.stage = 0, .replicas = 2}}}) == 2);
}
