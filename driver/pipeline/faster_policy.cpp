#include "driver/pipeline/faster_policy.h"

#include <algorithm>

#include "driver/pipeline/choose.h"
#include "scheduler/policies/policies.h"
#include "scheduler/step_of_plan.h"

namespace graphpipe::driver {

std::optional<PolicyAlternative> faster_policy(const Pipeline& pipeline) {
  constexpr double kWorthSaying = 0.99;
  const ir::Plan& plan = pipeline.plan;
  const scheduler::Policy* own = scheduler::find_policy(plan.policy);
  if (own == nullptr || own->tries_others || own->forward_only || own->asynchronous ||
      scheduler::schedule_size(pipeline.priced, plan.assignment) > scheduler::kMaxSimulatedOfFoundPlan)
    return std::nullopt;
  scheduler::BuildOptions options = build_options("auto", pipeline.priced);
  options.searched_actions = 0;
  const auto built = scheduler::build_schedule(pipeline.stages, plan.cluster, options);
  if (!built || built->step_seconds() > kWorthSaying * pipeline.built.step_seconds()) return std::nullopt;
  PolicyAlternative faster{.policy = built->schedule.policy, .step_seconds = built->step_seconds()};
  for (const scheduler::DeviceMemory& memory : built->memory)
    faster.peak_bytes = std::max(faster.peak_bytes, memory.peak.count);
  return faster;
}

}  // namespace graphpipe::driver
