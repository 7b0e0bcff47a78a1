// How fast schedules are checked and simulated, in actions (rows of all programs) per second of processor time.
//   schedule_speed [ranks] [micro-batches]
// One line per policy: actions, actions per second of the lowering, of the check, and of the simulator.

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/simulate/simulate.h"
#include "scheduler/standalone/policy_schedule.h"
#include "scheduler/validate/check_schedule.h"

using namespace graphpipe;
using namespace graphpipe::scheduler;

namespace {

struct Case {
  const char* policy;
  int chunks;
};
constexpr Case kCases[] = {{"gpipe", 1}, {"1f1b", 1},      {"interleaved", 4}, {"zb-1p", 1},
                           {"zb-v", 2},  {"dualpipev", 2}, {"pipedream", 1}};

/// Runs f once and returns actions per second of processor time.
template <typename F>
double rate(size_t actions, F&& f) {
  const std::clock_t start = std::clock();
  f();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return static_cast<double>(actions) / std::max(seconds, 1e-6);
}

size_t count_actions(const Schedule& schedule) {
  size_t count = 0;
  for (const ir::Program& program : schedule.programs) count += program.actions.size();
  return count;
}

int measure(const Case& each, int ranks, int64_t micro_batches) {
  const Policy& policy = *find_policy(each.policy);
  const Result<StageGraph> graph = policy_schedule(
      policy, {.ranks = ranks, .chunks = each.chunks, .micro_batches = micro_batches, .costs = {.latency = 0.5}});
  const ir::Cluster cluster = standalone_cluster(ranks, 0.5);
  if (!graph.ok()) return EXIT_FAILURE;
  Result<Schedule> compute = policy.order({.graph = *graph, .cluster = cluster});
  if (!compute.ok()) return EXIT_FAILURE;
  std::optional<Result<Schedule>> lowered;
  const std::clock_t start = std::clock();
  lowered = insert_transfers(*graph, *std::move(compute));
  const double lowering = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (!lowered->ok()) return EXIT_FAILURE;
  const Schedule& schedule = **lowered;
  const size_t actions = count_actions(schedule);
  bool right = false;
  const double checked = rate(actions, [&] { right = check_schedule(*graph, cluster, schedule).ok(); });
  const double simulated = rate(
      actions, [&] { right = simulate(*graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit}).ok() && right; });
  std::printf("%-12s %9zu actions   lowering %9.0f/s   check %9.0f/s   simulation %9.0f/s\n", each.policy, actions,
              static_cast<double>(actions) / std::max(lowering, 1e-6), checked, simulated);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 32;
  const int64_t micro_batches = argc > 2 ? std::atoll(argv[2]) : 4096;
  int failed = EXIT_SUCCESS;
  for (const Case& each : kCases) failed |= measure(each, ranks, micro_batches);
  return failed;
}
