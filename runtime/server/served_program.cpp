#include "runtime/server/served_program.h"

#include <set>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;
using wire::ActionRow;

[[noreturn]] void refuse(const std::string& why) {
  fail(Code::kUsage, "--staleness: " + why, "leave it out, or compile with --policy parameter-server");
}

void check_stage(const DeviceProgram& program) {
  const PlanTable& plan = *program.plan;
  if (plan.stages.size() != 1) refuse(text("the plan has ", plan.stages.size(), " stages, and the server holds one"));
  if (plan.stages.front().replicas != plan.device_count || plan.stages.front().mode != ReplicaMode::kRoundRobin)
    refuse("the plan's devices are no replicas that take turns");
  for (const ParamRow& row : program.stages.front()->params)
    if (row.role == ParamRole::kBuffer)
      refuse(text("the statistics ", quoted(ModelText(row.name)), " change with every forward, which no server sees"));
}

}  // namespace

ServedProgram::ServedProgram(const DeviceProgram& program, int32_t rank)
    : plan_(*program.plan), stages_(plan_.stages.begin(), plan_.stages.end()), program_(program) {
  check_stage(program);
  plan_.server = plan_.device_count++;
  placement_.push_back({.stage = 0, .replica = 0, .device = plan_.server});
  for (const PlacementRow& row : plan_.placement)
    placement_.push_back({.stage = 0, .replica = row.replica + 1, .device = row.device});
  ++stages_.front().replicas;
  plan_.placement = placement_;
  plan_.stages = stages_;
  program_.device = rank;
  program_.plan = &plan_;
  take_actions(program);
  program_.actions = actions_;
  if (is_server()) program_.arena_bytes = 0;  // it was planned for a stage that computes
}

void ServedProgram::take_actions(const DeviceProgram& program) {
  std::set<int64_t> own;  // first samples
  int32_t steps = 0, items = 0;
  for (ActionRow row : program.actions) {
    if (row.op == ActionOp::kForward) own.insert(row.range.first);
    const bool is_step = row.op == ActionOp::kStep;
    if (is_step && row.range.size() > plan_.stages.front().micro_batch)
      refuse(text("the plan makes one update from ", row.range.size(), " samples, and no server sums them"));
    const int32_t turn = is_step ? items++ % plan_.server : 0;
    if (is_step && !is_server() && own.contains(row.range.first) != (turn == program_.device))
      refuse("the plan's replicas take its micro-batches in another order than one after the other");
    if (is_step ? !is_server() && !own.contains(row.range.first) : is_server() || !wire::is_compute(row.op)) continue;
    row.replica = is_server() ? 0 : row.replica + 1;
    row.version = is_step ? ++steps : steps;
    actions_.push_back(row);
  }
}

}  // namespace graphpipe::runtime
