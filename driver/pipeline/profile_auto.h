#pragma once
// `--planner auto` for a profile of another project: every planner of both lists is asked, and the plan with the
// shortest simulated step is taken.

#include "driver/pipeline/plan_profile.h"

namespace graphpipe::driver {

/// Plans that fit the devices' memory come before others. The search of our own has half of --time-limit
/// (kSecondsForAll without it), the others, quick ones first, what is left; `complete` says whether that was enough for
/// all of them, and the plan is then never worse than that of a planner that is asked alone. It does not depend on
/// --threads. Errors: those of the search of our own, where no planner has a plan.
Result<ProfilePlan> plan_profile_by_all(const Options& options, const partitioner::LayerPlanRequest& request);

/// More than all planners take for a graph of some hundred layers on a machine that does nothing else.
inline constexpr double kSecondsForAll = 60;

}  // namespace graphpipe::driver
