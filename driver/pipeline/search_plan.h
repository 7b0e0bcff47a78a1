#pragma once
// The search for a plan whose code fits the memory. Planners know a bound of the memory that a plan takes; what its
// code takes is known once the plan is there (derive()).

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

class SearchLine;

/// Searches as the options say, and leaves the fastest plan found that fits in the pipeline, with all that follows from
/// it. Needs: a pipeline with its prices, machines and policy. `line`, which may be null, hears of the plans that are
/// timed. Errors: those of the planner, and of derive().
Status search_plan(Pipeline& pipeline, const PlanOptions& options, SearchLine* line);

}  // namespace graphpipe::driver
