#include "driver/pipeline/decision_costs.h"

#include <algorithm>
#include <set>

namespace graphpipe::driver {
namespace {

constexpr size_t kMaxReplannedActions = 200'000;

size_t action_count(const ir::Schedule& schedule) {
  size_t count = 0;
  for (const ir::Program& program : schedule.programs) count += program.actions.size();
  return count;
}

DecisionCost cost_without(std::string instead, Pipeline changed) {
  changed.plan.schedule.reset();
  const Status derived = derive(changed);
  if (derived) return {.instead = std::move(instead), .step_seconds = changed.built.step_seconds(), .why_not = ""};
  const Code code = derived.problems().front().code;
  return {.instead = std::move(instead),
          .step_seconds = 0,
          .why_not = code == Code::kNoFeasiblePlan ? "it does not fit into the memory of the devices"
                                                   : "these stages cannot be run so"};
}

bool is_replicated(const ir::Assignment& assignment) {
  return std::ranges::any_of(assignment.choice,
                             [](const ir::StageChoice& choice) { return choice.devices.size() > 1; });
}

DecisionCost without_replication(Pipeline changed) {
  for (ir::StageChoice& choice : changed.plan.assignment.choice) {
    choice.devices.resize(1);
    choice.mode = ir::ReplicaMode::kSplit;
    choice.shard_optimizer_state = false;
  }
  return cost_without("without replication", std::move(changed));
}

DecisionCost with_one_micro_batch(const Pipeline& pipeline, const std::set<int64_t>& sizes) {
  DecisionCost best;
  for (const int64_t size : sizes) {
    Pipeline changed = pipeline;
    for (ir::StageChoice& choice : changed.plan.assignment.choice) {
      choice.micro_batch = Samples{size};
      choice.k = 1;
    }
    DecisionCost cost = cost_without("one micro-batch size for all stages", std::move(changed));
    if (best.step_seconds == 0 || (cost.step_seconds > 0 && cost.step_seconds < best.step_seconds))
      best = std::move(cost);
  }
  return best;
}

}  // namespace

std::vector<DecisionCost> decision_costs(const Pipeline& pipeline) {
  std::vector<DecisionCost> costs;
  // An order that was written by hand has no policy that could order other stages.
  if (scheduler::find_policy(pipeline.plan.policy) == nullptr) return costs;
  if (action_count(pipeline.built.schedule) > kMaxReplannedActions || pipeline.stages.stages.size() < 2) return costs;
  if (pipeline.plan.execution == ir::Execution::kGraph) {
    Pipeline changed = pipeline;
    changed.plan.execution = changed.priced.execution = ir::Execution::kChain;
    costs.push_back(cost_without("stages one after the other, as a chain", std::move(changed)));
  }
  if (is_replicated(pipeline.plan.assignment)) costs.push_back(without_replication(pipeline));
  std::set<int64_t> sizes;
  for (const ir::StageChoice& choice : pipeline.plan.assignment.choice) sizes.insert(choice.micro_batch.count);
  if (sizes.size() > 1) costs.push_back(with_one_micro_batch(pipeline, sizes));
  if (is_forward_only(pipeline.built.schedule)) return costs;
  for (const std::string policy : {"gpipe", "1f1b"}) {
    if (policy == pipeline.plan.policy) continue;
    Pipeline changed = pipeline;
    changed.plan.policy = policy;
    changed.order = {};
    costs.push_back(cost_without("policy " + policy, std::move(changed)));
  }
  return costs;
}

}  // namespace graphpipe::driver
