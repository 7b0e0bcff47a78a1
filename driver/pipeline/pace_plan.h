#pragma once
// A plan as a paced run takes it: what the simulator knows of its actions, messages and links.

#include <cstdint>

#include "driver/pipeline/pipeline.h"
#include "support/result.h"
#include "wire/pace_plan.h"

namespace graphpipe::driver {

/// What a user asks of a paced run; zeros are chosen.
struct PaceRequest {
  double scale = 0, share = 0;
  int cores = 1;
};

/// Errors: kBadSchedule where the plan's schedule cannot be simulated, kBadPlan where replicas divide the optimizer's
/// state.
Result<wire::PacePlan> pace_plan_of(const Pipeline& pipeline, const PaceRequest& request);

/// Bytes that the ranks of the unscaled plan send to each other in a step.
double bytes_of_step(const wire::PacePlan& plan);

}  // namespace graphpipe::driver
