#include "runtime/executor/evaluation_program.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;
using wire::ActionRow;

// Whether the action belongs to a forward: slices belong to the send after them, joins to the end of their edge.
bool serves_forwards(const PlanTable& plan, std::span<const ActionRow> actions, size_t index) {
  const ActionRow& row = actions[index];
  switch (row.op) {
    case ActionOp::kForward:
    case ActionOp::kSendForward:
    case ActionOp::kReceiveForward:
      return true;
    case ActionOp::kSlice:
      return index + 1 < actions.size() && actions[index + 1].op == ActionOp::kSendForward;
    case ActionOp::kConcatenate:
      return plan.edges[static_cast<size_t>(row.edge)].to == row.stage;
    default:
      return false;
  }
}

}  // namespace

EvaluationProgram::EvaluationProgram(const DeviceProgram& program, int64_t samples)
    : plan_(*program.plan), program_(program) {
  plan_.loss_updates = {};
  plan_.batches = 1;
  for (const StageEntry* entry : program.stages) {
    entries_.push_back(*entry);
    if (entry->evaluate != nullptr) entries_.back().forward = entry->evaluate;
  }
  for (const StageEntry& entry : entries_) held_.push_back(&entry);
  for (size_t i = 0; i < program.actions.size(); ++i) {
    if (!serves_forwards(plan_, program.actions, i)) continue;
    ActionRow row = program.actions[i];
    row.range = wire::intersect(row.range, {0, samples});
    row.version = 0;
    row.overlaps_next = false;
    if (!row.range.empty()) actions_.push_back(row);
  }
  program_.plan = &plan_;
  program_.stages = held_;
  program_.actions = actions_;
}

}  // namespace graphpipe::runtime
