#include "partitioner/cost_models/layer_request.h"

#include "partitioner/cost_models/check_layer_plan.h"

namespace graphpipe::partitioner {

double LayerPlanAnswer::gap() const {
  return larger_is_better ? gap_over(bound, objective) : gap_over(objective, bound);
}

Result<LayerPlanAnswer> plan_layers(const PlannerEntry& planner, const LayerPlanRequest& request) {
  GP_CHECK(planner.search != nullptr && request.graph != nullptr && !request.machine.levels.empty());
  GP_TRY(LayerPlanAnswer answer, planner.search(request));
  const Diagnostics problems = check_layer_plan(request, answer);
  if (!problems.empty()) return problems;
  return answer;
}

}  // namespace graphpipe::partitioner
