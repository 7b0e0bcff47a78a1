#pragma once
// A program may cover several steps (PlanTable::batches), through which its sample ranges count. Data, random numbers
// and learning rates depend on the step and the sample within it.

#include <algorithm>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// The number of the program's steps before the one that the samples belong to.
inline int64_t steps_before(const PlanTable& plan, wire::SampleRange range) { return range.first / plan.batch; }

/// The same samples, counted within that step. No item or update spans two steps.
inline wire::SampleRange within_step(const PlanTable& plan, wire::SampleRange range) {
  const int64_t before = steps_before(plan, range) * plan.batch;
  return {range.first - before, range.last - before};
}

/// The samples of the stage's micro-batch of which `range` is a part.
inline wire::SampleRange micro_batch_of(const PlanTable& plan, int32_t stage, wire::SampleRange range) {
  const int64_t size = plan.stages[static_cast<size_t>(stage)].micro_batch;
  const int64_t before = steps_before(plan, range) * plan.batch, first = (range.first - before) / size * size;
  return {before + first, before + std::min(first + size, plan.batch)};
}

/// Whether the replicas of the stage run their parts of each micro-batch together.
inline bool exchanges_sums(const PlanTable& plan, const StageEntry& entry) {
  return entry.exchanges_sums && plan.stages[static_cast<size_t>(entry.stage)].replicas > 1;
}

}  // namespace graphpipe::runtime
