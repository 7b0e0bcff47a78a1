#include "runtime/training/next_drain.h"

#include <algorithm>

namespace graphpipe::runtime {

int64_t next_drain(const PlanTable& plan, const wire::RunOptions& options, int64_t step) {
  const bool one_by_one =
      !options.data.feed.empty() || !options.output.record_steps.empty() || !options.output.follow_steps.empty();
  if (one_by_one) return step + 1;
  int64_t next = (step / plan.batches + 1) * plan.batches;
  for (const int64_t every : {options.checkpoint.every_steps, options.data.eval_every})
    if (every > 0) next = std::min(next, (step / every + 1) * every);
  return next;
}

}  // namespace graphpipe::runtime
