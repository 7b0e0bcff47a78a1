#include "runtime/executor/rest_of_epoch.h"

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;

bool is_of_update(ActionOp op) {
  return op == ActionOp::kReduceGradient || op == ActionOp::kNorm || op == ActionOp::kStep ||
         op == ActionOp::kPublish || op == ActionOp::kFreeVersion;
}

}  // namespace

std::vector<wire::ActionRow> actions_of_rest(const DeviceProgram& program, int64_t samples) {
  std::vector<wire::ActionRow> actions;
  for (wire::ActionRow row : program.actions) {
    if (row.op == ActionOp::kStep && row.range != wire::SampleRange{0, program.plan->batch})
      fail(Code::kUsage,
           "the schedule applies gradients of parts of the batch within a step, so no step has fewer samples",
           "take --last-batch drop, pad or wrap");
    if (!is_of_update(row.op)) {
      const bool had_samples = !row.range.empty();
      row.range = wire::intersect(row.range, {0, samples});
      if (had_samples && row.range.empty()) continue;
    }
    actions.push_back(row);
  }
  return actions;
}

}  // namespace graphpipe::runtime
