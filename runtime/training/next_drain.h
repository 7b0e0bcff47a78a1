#pragma once
// Between which steps the pipeline of an asynchronous plan drains (docs/schedules.md, section 3).

#include <cstdint>

#include "runtime/program.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// The step before which it drains next, where `step` begins: at every multiple of the plan's batches, and where a
/// checkpoint or an evaluation is due, since both are of weights that all samples before them have made. Counted from
/// the start of the training, so that a run that goes on drains where one that was never interrupted does. Behind every
/// step where a feeder makes the data, which has one batch at a time, and where steps are recorded one by one.
int64_t next_drain(const PlanTable& plan, const wire::RunOptions& options, int64_t step);

}  // namespace graphpipe::runtime
