#pragma once
// A program may cover several steps (PlanTable::batches), through which its sample ranges count. Data, random numbers
// and learning rates depend on the step and the sample within it.

#include "runtime/program.h"

namespace graphpipe::runtime {

/// The number of the program's steps before the one that the samples belong to.
inline int64_t steps_before(const PlanTable& plan, wire::SampleRange range) { return range.first / plan.batch; }

/// The same samples, counted within that step. No item or update spans two steps.
inline wire::SampleRange within_step(const PlanTable& plan, wire::SampleRange range) {
  const int64_t before = steps_before(plan, range) * plan.batch;
  return {range.first - before, range.last - before};
}

}  // namespace graphpipe::runtime
