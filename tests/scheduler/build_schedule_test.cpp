#include "scheduler/build_schedule.h"

#include <doctest/doctest.h>

#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

TEST_CASE("an unknown policy is refused with the names of the known ones") {
  const StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 2});
  const auto built = build_schedule(graph, standalone_cluster(2), {.policy = "nope"});
  REQUIRE(!built.ok());
  CHECK(built.problems().front().code == Code::kUsage);
  for (const Policy& policy : all_policies())
    CHECK(built.problems().front().hint.find(policy.name) != std::string::npos);
}

TEST_CASE("every policy of the list builds the same schedule twice") {
  for (const Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    const StageGraph graph = standalone_for(policy, 4, 8);
    const ir::Cluster cluster = standalone_cluster(4);
    const BuildOptions options{.policy = std::string(policy.name)};
    const auto first = build_schedule(graph, cluster, options), second = build_schedule(graph, cluster, options);
    REQUIRE(first.ok());
    CHECK(ir::print_schedule(first->schedule) == ir::print_schedule(second->schedule));
  }
}

TEST_CASE("a schedule of 160,000 actions is ordered, lowered, checked and simulated") {
  const StageGraph graph = chain_stages({.ranks = 16, .micro_batches = 2000});
  const ir::Cluster cluster = standalone_cluster(16);
  const PolicyRequest request{.graph = graph, .cluster = cluster, .in_flight = depth_numbers(graph)};
  const Schedule schedule = *insert_transfers(graph, *order_kfkb(request));
  size_t actions = 0;
  for (const ir::Program& program : schedule.programs) actions += program.actions.size();
  CHECK(actions > 160'000);
  CHECK(check_schedule(graph, cluster, schedule).ok());
  CHECK(simulate(graph, cluster, schedule).ok());
}
