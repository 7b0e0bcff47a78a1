#include "runtime/executor/check_update_order.h"

#include "runtime/error.h"

namespace graphpipe::runtime {

using wire::ActionOp;

void check_update_order(const PlanTable& plan, const ResolvedProgram& program, const UpdateSettings& settings,
                        StepChecks checks) {
  bool stepped = false;
  for (const ResolvedAction& action : program.actions) {
    const bool again = action.row.op == ActionOp::kStep && action.row.version > 1;
    stepped = stepped || action.row.op == ActionOp::kStep;
    if (again && settings.options.accumulate > 1)
      fail(Code::kBadSchedule, describe(plan, action.row) + " is not the only update of a training step",
           "run it without --accumulate: such schedules update as often as they say");
    const bool needs_all = settings.options.clip_norm > 0 || checks.guard || checks.loss_scale;
    if (stepped && needs_all && (again || wire::is_compute(action.row.op)))
      fail(Code::kBadSchedule,
           describe(plan, action.row) + " comes after a STEP, so the gradients of the whole step are not known there",
           checks.loss_scale
               ? "compile fp16 with a synchronous policy, or in bf16, which needs no loss scale; or pass --loss-scale 0"
               : "run it without --clip-norm and --on-anomaly skip, or put every STEP of the device at its end");
  }
}

}  // namespace graphpipe::runtime
