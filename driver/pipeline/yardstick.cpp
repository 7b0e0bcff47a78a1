#include "driver/pipeline/yardstick.h"

#include <algorithm>

#include "cost/iteration_time.h"
#include "support/units.h"

namespace graphpipe::driver {
namespace {

/// Micro-batches in a schedule after which what filling and draining costs is small.
constexpr int64_t kMicroBatchesPerDrain = 512;
constexpr int64_t kUsualDrainEvery = 16;

// Where nobody says after how many batches an asynchronous schedule drains.
int64_t usual_drain_every(const ir::StageGraph& stages) {
  return std::clamp<int64_t>(kMicroBatchesPerDrain / ir::max_micro_batches(stages), 1, kUsualDrainEvery);
}

}  // namespace

int64_t schedule_size(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  int64_t size = 0;
  for (const ir::StageChoice& choice : assignment.choice) {
    const int64_t micro_batches = (graph.batch.count + choice.micro_batch.count - 1) / choice.micro_batch.count;
    size += micro_batches * (choice.mode == ir::ReplicaMode::kSplit ? std::ssize(choice.devices) : 1);
  }
  return size;
}

Result<OrderedStages> order_stages(const ir::StageGraph& stages, const ir::Cluster& cluster,
                                   const scheduler::BuildOptions& options, int64_t drain_every) {
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  int64_t batches = 1;
  if (policy != nullptr && policy->asynchronous) batches = drain_every > 0 ? drain_every : usual_drain_every(stages);
  for (;; batches = 1) {
    auto repeated = ir::with_batches(stages, batches);
    auto built = repeated ? scheduler::build_schedule(*repeated, cluster, options)
                          : Result<scheduler::BuiltSchedule>(repeated.problems());
    if (!built && drain_every == 0 && batches > 1) continue;
    if (!built) return built.problems();
    return OrderedStages{.stages = std::move(*repeated), .built = std::move(*built)};
  }
}

double step_of(const ir::PlanGraph& graph, const ir::Cluster& cluster, const scheduler::BuildOptions& options,
               ir::Assignment assignment, int64_t max_simulated, int64_t drain_every) {
  const auto stages = ir::build_stage_graph(graph, assignment);
  if (!stages) return kInfinity;
  if (schedule_size(graph, assignment) > max_simulated) {
    const cost::IterationTime time = cost::iteration_time(*stages, cluster);
    return time.fits ? time.total() : kInfinity;
  }
  const auto ordered = order_stages(*stages, cluster, options, drain_every);
  return ordered ? ordered->built.step_seconds() : kInfinity;
}

}  // namespace graphpipe::driver
