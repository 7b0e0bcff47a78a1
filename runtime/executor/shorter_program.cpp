#include "runtime/executor/shorter_program.h"

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;

bool is_of_update(ActionOp op) {
  return op == ActionOp::kReduceGradient || op == ActionOp::kNorm || op == ActionOp::kStep ||
         op == ActionOp::kPublish || op == ActionOp::kFreeVersion;
}

}  // namespace

std::vector<wire::ActionRow> actions_of_first(const DeviceProgram& program, int64_t samples) {
  const wire::SampleRange kept{0, samples}, whole_step{0, program.plan->batch};
  const bool one_update_per_step = program.plan->batches == 1;
  std::vector<wire::ActionRow> actions;
  for (wire::ActionRow row : program.actions) {
    const wire::SampleRange left = wire::intersect(row.range, kept);
    if (!row.range.empty() && left.empty()) continue;
    if (row.op == ActionOp::kStep && left != row.range && !(one_update_per_step && row.range == whole_step))
      fail(Code::kUsage,
           "the schedule applies gradients of parts of the batch within a step, so no step has fewer samples",
           "take --last-batch drop, pad or wrap");
    if (!is_of_update(row.op)) row.range = left;
    actions.push_back(row);
  }
  return actions;
}

}  // namespace graphpipe::runtime
