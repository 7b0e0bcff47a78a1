#pragma once
// What each decision of a plan is worth: the same plan with that one decision taken back.

#include <string>
#include <vector>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

struct DecisionCost {
  /// What is done instead: "without replication".
  std::string instead;
  /// Simulated seconds of a step; 0 where there is no such plan.
  double step_seconds = 0;
  /// Why there is none: a sentence that holds no name of the model.
  std::string why_not;
};

/// Taken back one at a time, where the plan decided so: branches side by side, replicas, micro-batches of different
/// sizes, the policy (against GPipe's order and 1F1B). The other decisions stand; nothing is searched again but the one
/// size of all micro-batches, among the sizes of the plan. Empty for plans of more than 200 000 actions, which would
/// take long.
std::vector<DecisionCost> decision_costs(const Pipeline& pipeline);

}  // namespace graphpipe::driver
