// Rows of candidate stages are filled as often as a longer time may add a stage, and no more.

#include "partitioner/graphpipe/stage_rows.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "partitioner/graphpipe/stage_cost_table.h"
#include "support/units.h"
#include "tests/support/plan_graphs.h"

namespace graphpipe::partitioner {
namespace {

TEST_CASE("a row that leaves no stage out for its time is not filled again for a longer one") {
  StageRows<StageOption> rows;
  const RowKey key{};
  int filled = 0;
  const auto fill_up_to = [&](double longest) {
    return [&filled, longest](StageRow<StageOption>& row) {
      ++filled;
      if (row.limit >= longest) row.limit = kInfinity;
    };
  };
  for (const double limit : {1.0, 2.0, 4.0, 8.0, 16.0}) rows.at(key, limit, fill_up_to(4));
  CHECK(filled == 3);
}

TEST_CASE("a stage's options are all there from the time of the longest on") {
  const ir::PlanGraph graph = tests::chain_graph(3, {.seconds = 1, .bytes = 1, .weight_bytes = 1}, Samples(4));
  const ir::Cluster cluster = ir::equal_devices(4);
  StageEvaluator evaluator(graph, cluster, Samples(4), 1, 4);
  for (const ir::PlanNodeId node : graph.node_ids()) evaluator.add(std::vector{node});
  std::vector<StageOption> all, most;
  CHECK(evaluator.options(kInfinity, all));
  REQUIRE(all.size() > 1);
  double longest = 0;
  for (const StageOption& option : all) longest = std::max(longest, option.time_per_sample);
  std::vector<StageOption> again;
  CHECK(evaluator.options(longest, again));
  CHECK(again.size() == all.size());
  CHECK_FALSE(evaluator.options(longest * (1 - 1e-9), most));
  CHECK(most.size() < all.size());
}

}  // namespace
}  // namespace graphpipe::partitioner
