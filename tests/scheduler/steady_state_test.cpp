// What asynchronous schedules take per batch where none drains.

#include "scheduler/analysis/steady_state.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

constexpr double kUnitsPerMicroBatch = 3;  // forward and both halves of the backward, a unit each

StageGraph weighted_chain(int stages, int64_t micro_batches) {
  StageGraph graph = chain_stages({.ranks = stages, .micro_batches = micro_batches});
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1);
  return graph;
}

std::optional<SteadyState> steady_of(int stages, int64_t micro_batches, const BuildOptions& options, double& drained) {
  const StageGraph graph = weighted_chain(stages, micro_batches);
  const ir::Cluster cluster = standalone_cluster(stages);
  const auto built = build_schedule(graph, cluster, options);
  if (!built.ok()) FAIL(built.problems().front().message);
  drained = built->step_seconds();
  // As a plan file has it: the policy's name and the schedule, without what was asked of the order.
  return steady_state(graph, cluster, {.policy = options.policy}, built->schedule);
}

}  // namespace

TEST_CASE("stages of equal work, never drained, are never idle: a micro-batch takes the time of one stage") {
  const BuildOptions orders[] = {{.policy = "pipedream"},
                                 {.policy = "pipedream", .choices = {.vertical_sync = true}},
                                 {.policy = "2bw"},
                                 {.policy = "2bw", .choices = {.update = Samples(8)}}};
  for (const BuildOptions& options : orders)
    for (const int stages : {1, 2, 4})
      for (const int64_t micro_batches : {8, 16}) {
        CAPTURE(options.policy);
        CAPTURE(stages);
        double drained = 0;
        const auto steady = steady_of(stages, micro_batches, options, drained);
        REQUIRE(steady.has_value());
        const double work = kUnitsPerMicroBatch * static_cast<double>(micro_batches);
        CHECK(steady->step_seconds == doctest::Approx(work).epsilon(1e-6));
        if (options.policy == "pipedream") CHECK(steady->update_seconds == doctest::Approx(kUnitsPerMicroBatch));
        // Draining costs each other stage a forward and a backward.
        CHECK(drained == doctest::Approx(work + kUnitsPerMicroBatch * (stages - 1)).epsilon(1e-6));
      }
}

TEST_CASE("an update takes the time of its samples, also where it does not divide the batch") {
  double drained = 0;
  const auto steady = steady_of(2, 6, {.policy = "2bw", .choices = {.update = Samples(4)}}, drained);
  REQUIRE(steady.has_value());
  CHECK(steady->update_seconds == doctest::Approx(4 * kUnitsPerMicroBatch));
}

TEST_CASE("where a stream of batches needs longer updates than a batch there is no time without draining") {
  double drained = 0;
  CHECK(steady_of(4, 4, {.policy = "2bw"}, drained).has_value());
  CHECK_FALSE(steady_of(4, 2, {.policy = "2bw"}, drained).has_value());
}

TEST_CASE("an update of more samples than a batch is refused, and one that does not divide it where batches follow") {
  const StageGraph graph = weighted_chain(2, 6);
  const ir::Cluster cluster = standalone_cluster(2);
  const auto problem = [&](int64_t update, int64_t drain_every) {
    const auto ordered =
        order_batches(graph, cluster, {.policy = "2bw", .choices = {.update = Samples(update)}}, drain_every);
    return ordered.ok() ? "" : ordered.problems().front().message;
  };
  for (const int64_t drain_every : {0, 1, 4})
    CHECK(problem(12, drain_every).find("updates of 12 samples are longer than the batch of 6") != std::string::npos);
  for (const int64_t drain_every : {0, 4})
    CHECK(problem(4, drain_every).find("do not divide the batch of 6") != std::string::npos);
  CHECK(problem(0, 100).empty());
  CHECK(problem(0, 65'536).find("at most 65536 are ordered") != std::string::npos);
  CHECK(problem(4, 1).empty());
  CHECK(problem(3, 0).empty());
}

TEST_CASE(
    "the more batches follow each other before the pipeline drains, the nearer a step comes to one without draining") {
  const ir::Cluster cluster = standalone_cluster(4);
  for (const char* policy : {"pipedream", "2bw"}) {
    CAPTURE(policy);
    const StageGraph one = weighted_chain(4, 8);
    const double drained = build_schedule(one, cluster, {.policy = policy})->step_seconds();
    for (const int64_t batches : {2, 5}) {
      const auto graph = ir::with_batches(one, batches);
      REQUIRE(graph.ok());
      const auto built = build_schedule(*graph, cluster, {.policy = policy});
      REQUIRE(built.ok());
      const auto steady = steady_state(*graph, cluster, {.policy = policy}, built->schedule);
      REQUIRE(steady.has_value());
      const double ends = drained - steady->step_seconds;
      CHECK(built->step_seconds() == doctest::Approx(steady->step_seconds + ends / static_cast<double>(batches)));
    }
  }
}

TEST_CASE("a schedule of several batches has no micro-batch and no update of two of them") {
  const ir::Cluster cluster = standalone_cluster(2);
  StageGraph graph = weighted_chain(2, 6);
  const auto several = ir::with_batches(graph, 4);
  REQUIRE(several.ok());
  CHECK(build_schedule(*several, cluster, {.policy = "2bw", .choices = {.update = Samples(3)}}).ok());
  const auto refused = build_schedule(*several, cluster, {.policy = "2bw", .choices = {.update = Samples(4)}});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().front().message.find("do not divide the batch of 6") != std::string::npos);
  for (ir::Stage& stage : graph.stages) stage.choice.micro_batch = Samples(4);
  CHECK(ir::with_batches(graph, 1).ok());
  REQUIRE_FALSE(ir::with_batches(graph, 4).ok());
  CHECK(ir::with_batches(graph, 4).problems().front().message.find("would lie in two steps") != std::string::npos);
}

TEST_CASE("updates of 2bw whose length nobody asked for divide each of several batches, also where they get longer") {
  int several_batches = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed, {.frozen = false});
    const auto graph = ir::with_batches(standalone.graph, 3);
    if (!graph.ok()) continue;
    const auto built = build_schedule(*graph, standalone.cluster, {.policy = "2bw"});
    several_batches += built.ok();
    if (built.ok()) continue;
    const std::string& message = built.problems().front().message;
    CAPTURE(message);
    // Where no update within a batch will do, longer ones are of several batches.
    int64_t update = 0;
    if (std::sscanf(message.c_str(), "2bw: updates of %ld samples do not divide", &update) == 1)
      CHECK(update >= standalone.graph.batch.count);
  }
  CHECK(several_batches > 20);
}

TEST_CASE("synchronous schedules, and such that no policy builds, have no steady state") {
  double drained = 0;
  CHECK_FALSE(steady_of(3, 6, {.policy = "kfkb"}, drained).has_value());
  const StageGraph graph = weighted_chain(3, 6);
  const ir::Cluster cluster = standalone_cluster(3);
  auto built = build_schedule(graph, cluster, {.policy = "pipedream"});
  REQUIRE(built.ok());
  CHECK(steady_state(graph, cluster, {.policy = "pipedream"}, built->schedule).has_value());
  CHECK_FALSE(steady_state(graph, cluster, {.policy = "2bw"}, built->schedule).has_value());
}
