#pragma once
// Planners on profiles of other projects. Planners of other projects plan the nodes of the file in their own terms;
// ours plan the folded graph on the accelerators; all plans are measured alike.

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Up to four candidates, the best step by request.measure first; each with the planner's own terms, which for our
/// planners are the step and a bound on it. Needs: request.profile, request.measure. Errors: those of the planner;
/// kBadPlan for a manual plan that parts what belongs together.
Result<PlanAnswer> plan_of_profile(const PlannerEntry& planner, const PlanRequest& request);

/// `auto`: the search of ours has half of the time limit, then every other planner is asked, the quick ones first, each
/// within what is left. Plans that fit the devices' memory come before others. `complete` says whether the time was
/// enough for all of them: then the plan is never worse than that of a planner that is asked alone. It does not depend
/// on the number of threads. Errors: those of our search, where no planner has a plan.
Result<PlanAnswer> plan_auto_of_profile(const PlanRequest& request);

/// The time limit of a search where nobody says one, in seconds: nobody wants to wait longer for a graph of a thousand
/// layers. `auto` has more, which is enough for all planners on a few hundred layers where nothing else runs.
double usual_seconds_of_profile(std::string_view planner);

/// The request's cluster without CPUs.
ir::Cluster accelerators_of(const PlanRequest& request);

/// No plan of our planners has a shorter step; seconds.
double min_step_of_profile(const PlanRequest& request);

/// Our planners only, `auto` included.
Result<PlanAnswer> plan_folded(const PlannerEntry& planner, const PlanRequest& request);

}  // namespace graphpipe::partitioner
