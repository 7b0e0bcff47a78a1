#pragma once
// Where the pipeline of an asynchronous plan drains (docs/schedules.md, section 3).

#include <cstdint>

#include "runtime/program.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// The step before which it drains next, if `step` begins a segment: at every multiple of the plan's batches, and when
/// a checkpoint or an evaluation is due, since both need weights to which all earlier samples have contributed. Counted
/// from the start of the training, so that a resumed run drains where an uninterrupted one would. After every step if a
/// feeder makes the data, which has one batch at a time, or if steps are recorded one by one.
int64_t next_drain(const PlanTable& plan, const wire::RunOptions& options, int64_t step);

}  // namespace graphpipe::runtime
