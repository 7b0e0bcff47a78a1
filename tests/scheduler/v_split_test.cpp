// V-Half and V-Min hold what their laws say on any number of ranks, odd ones too, for which no lists are published.

#include <doctest/doctest.h>

#include "scheduler/build_schedule.h"
#include "scheduler/standalone/policy_schedule.h"

using namespace graphpipe;
using namespace graphpipe::scheduler;

TEST_CASE("v-half holds (P + 2) / 2 micro-batches on its fullest rank and v-min (P + 4) / 3, rounded down") {
  for (const char* name : {"v-half", "v-min"})
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (const int64_t micro_batches : {1, 2, ranks, 2 * ranks, 3 * ranks + 1}) {
        CAPTURE(name);
        CAPTURE(ranks);
        CAPTURE(micro_batches);
        const auto graph = policy_schedule(*find_policy(name), {.ranks = ranks, .micro_batches = micro_batches});
        REQUIRE(graph.ok());
        const ir::Cluster cluster = standalone_cluster(ranks);
        const auto built =
            build_schedule(*graph, cluster, {.policy = name, .simulation = {.ticks_per_second = kTicksPerUnit}});
        REQUIRE(built.ok());
        const ScheduleMetrics metrics = schedule_metrics(*graph, cluster, built->schedule, built->timeline);
        const int law = std::string_view(name) == "v-half" ? (ranks + 2) / 2 : (ranks + 4) / 3;
        // Two chunks of a rank make one micro-batch.
        for (const int peak : metrics.peak_to_weight_gradient) CHECK(peak <= 2 * law);
        CHECK(metrics.lower_bound <= metrics.makespan);
      }
}
