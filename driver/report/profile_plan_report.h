#pragma once
// What is said of a plan for a profile of another project.

#include "driver/pipeline/plan_profile.h"
#include "driver/report/json_object.h"

namespace graphpipe::driver {

/// Of the best plan of an answer: its stages, its planner's own number and the step, as flat JSON and in words.
JsonObject profile_json(const Options& options, const ProfileProblem& problem, const partitioner::PlanAnswer& answer);
std::string profile_text(const Options& options, const ProfileProblem& problem, const partitioner::PlanAnswer& answer);

}  // namespace graphpipe::driver
