#pragma once
// A program may be of several steps (PlanTable::batches), through which its sample ranges count. Data, random numbers
// and learning rates go by the step and the sample within it.

#include "runtime/program.h"

namespace graphpipe::runtime {

/// How many steps of the program come before the one that the samples are of.
inline int64_t steps_before(const PlanTable& plan, wire::SampleRange range) { return range.first / plan.batch; }

/// The same samples as that step counts them. No item or update is of two steps.
inline wire::SampleRange within_step(const PlanTable& plan, wire::SampleRange range) {
  const int64_t before = steps_before(plan, range) * plan.batch;
  return {range.first - before, range.last - before};
}

}  // namespace graphpipe::runtime
