#pragma once
// The time per batch of an asynchronous schedule when batches follow each other without draining. Such schedules are
// designed for this: a step that drains pays for warm-up and drain once per batch, which trainings of many batches can
// avoid (Narayanan et al., PipeDream, SOSP 2019, section 3.2).

#include <optional>

#include "scheduler/build_schedule.h"

namespace graphpipe::scheduler {

struct SteadyState {
  /// Of one more batch behind others.
  double step_seconds = 0;
  /// Of one of its updates.
  double update_seconds = 0;
};

/// Simulates some batches as one, and one batch more: what that takes longer. The schedule must be what the options
/// build for the graph; where their order was not kept, the update and vertical sync that build it are found. Absent of
/// synchronous policies, of schedules that the policy does not build, and where longer ones are refused or need updates
/// of more samples than a batch has.
std::optional<SteadyState> steady_state(const StageGraph& graph, const ir::Cluster& cluster,
                                        const BuildOptions& options, const Schedule& schedule);

}  // namespace graphpipe::scheduler
