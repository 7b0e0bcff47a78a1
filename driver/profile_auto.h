#pragma once
// `--planner auto` for a profile of another project: every planner of both lists is asked, and the plan with the
// shortest simulated step is taken.

#include "driver/plan_profile.h"

namespace graphpipe::driver {

/// Plans that fit the devices' memory come before others. Never worse than a planner that is asked alone: each has the
/// time that it has then, as long as all of them together stay within --time-limit, or kSecondsForAll without it. The
/// plan does not depend on --threads. Errors: those of the search of our own, where no planner has a plan.
Result<ProfilePlan> plan_profile_by_all(const Options& options, const partitioner::LayerPlanRequest& request);

/// More than all planners take for a graph of some hundred layers on a machine that does nothing else.
inline constexpr double kSecondsForAll = 60;

}  // namespace graphpipe::driver
