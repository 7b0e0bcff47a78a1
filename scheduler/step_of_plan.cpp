#include "scheduler/step_of_plan.h"

#include "cost/iteration_time.h"
#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::scheduler {

int64_t schedule_size(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  int64_t size = 0;
  for (const ir::StageChoice& choice : assignment.choice) {
    const int64_t micro_batches = ceil_div(graph.batch.count, choice.micro_batch.count);
    size += micro_batches * (choice.mode == ir::ReplicaMode::kSplit ? std::ssize(choice.devices) : 1);
  }
  return size;
}

double step_of_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster, const BuildOptions& options,
                    ir::Assignment assignment, int64_t max_simulated, int64_t drain_every) {
  const auto stages = ir::build_stage_graph(graph, assignment);
  if (!stages) return kInfinity;
  if (schedule_size(graph, assignment) > max_simulated) {
    const cost::IterationTime time = cost::iteration_time(*stages, cluster);
    return time.fits ? time.total() : kInfinity;
  }
  const auto ordered = order_batches(*stages, cluster, options, drain_every);
  return ordered ? ordered->built.step_seconds() : kInfinity;
}

std::optional<Diagnostic> refusal_of_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster,
                                          const BuildOptions& options, ir::Assignment assignment, int64_t drain_every) {
  const auto stages = ir::build_stage_graph(graph, assignment);
  if (!stages) return stages.problems().front();
  const auto ordered = order_batches(*stages, cluster, options, drain_every);
  return ordered ? std::nullopt : std::optional(ordered.problems().front());
}

}  // namespace graphpipe::scheduler
