// The ways of a paced run are those that tensors take, and no others.

#include "driver/pipeline/pace_plan.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>

#include "driver/verbs/generate.h"

namespace graphpipe::tests {
namespace {

using Ways = std::set<std::pair<int32_t, int32_t>>;

driver::Options options_for(const std::string& model, const std::string& loss, int64_t devices) {
  driver::Options options;
  options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + model + "/model.onnx";
  options.training.loss = loss;
  options.plan.devices = devices;
  options.plan.micro_batch = "2";
  return options;
}

driver::Options in_stages(driver::Options options) {
  options.plan.planner = "equal-split";
  options.plan.stages = options.plan.devices;
  return options;
}

wire::PacePlan paced(const driver::Options& options) {
  const auto made = driver::make_pipeline(options);
  REQUIRE(made.ok());
  const auto plan = driver::pace_plan_of(*made, {.scale = 1, .share = 1, .cores = 1});
  REQUIRE(plan.ok());
  return *plan;
}

Ways ways_of(const wire::PacePlan& plan) {
  Ways ways;
  for (const wire::PaceLink& way : plan.ways) {
    CHECK(ways.emplace(way.from, way.to).second);
    CHECK(way.link < plan.links);
    CHECK(way.byte > 0);
  }
  return ways;
}

/// Source and destination ranks of all messages between stages of one replica each.
Ways received(const wire::PacePlan& plan) {
  Ways ways;
  for (size_t rank = 0; rank < plan.programs.size(); ++rank)
    for (const wire::PaceAction& action : plan.programs[rank]) {
      if (!wire::is_receive(action.row.op)) continue;
      const wire::PaceEdge& edge = plan.edges[static_cast<size_t>(action.row.edge)];
      const int32_t sender = edge.to == action.row.stage ? edge.from : edge.to;
      for (const wire::PacePlace& place : plan.places)
        if (place.stage == sender && place.rank != static_cast<int32_t>(rank))
          ways.emplace(place.rank, static_cast<int32_t>(rank));
    }
  return ways;
}

TEST_CASE("between stages without replicas there is a way for each pair of ranks with messages") {
  const wire::PacePlan plan = paced(in_stages(options_for("dlrm", "bce:logit,click", 4)));
  REQUIRE(plan.groups.empty());
  const Ways ways = ways_of(plan);
  CHECK(ways == received(plan));
  CHECK(ways.size() < 12);  // of four ranks to each other
}

TEST_CASE("replicas have the ways of their ring") {
  driver::Options options = options_for("dlrm", "bce:logit,click", 4);
  options.plan.planner = "data-parallel";
  CHECK(ways_of(paced(options)) == Ways{{0, 1}, {1, 2}, {2, 3}, {3, 0}});
}

TEST_CASE("a plan whose replicas divide the optimizer's state is not paced, one without replicas is") {
  for (const int64_t devices : {1, 2}) {
    CAPTURE(devices);
    driver::Options options = options_for("dlrm", "bce:logit,click", devices);
    options.plan.planner = "data-parallel";
    auto made = driver::make_pipeline(options);
    REQUIRE(made.ok());
    made->plan.assignment.choice[ir::StageId(size_t{0})].shard_optimizer_state = true;
    CHECK(driver::pace_plan_of(*made, {.scale = 1, .share = 1, .cores = 1}).ok() == (devices == 1));
  }
}

TEST_CASE("stages with copies of a weight have ways to each other, in both directions") {
  const wire::PacePlan plan = paced(in_stages(options_for("gpt2_like", "cross_entropy:logits,label", 4)));
  Ways expected = received(plan);
  bool found = false;
  for (const wire::PaceGroup& group : plan.groups)
    for (const int32_t from : group.stages)
      for (const int32_t to : group.stages)
        if (from != to) found = expected.emplace(from, to).second || found;  // stage s lies on rank s
  CHECK(found);
  CHECK(ways_of(plan) == expected);
}

}  // namespace
}  // namespace graphpipe::tests
