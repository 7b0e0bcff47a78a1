#include "codegen/last_shares.h"

#include <map>

#include "codegen/stage_steps.h"

namespace graphpipe::codegen {

std::vector<size_t> steps_to_last_share(const ir::Graph& graph, const StageCut& cut) {
  std::map<ir::ValueId, size_t> made_by;  // 1: the first step
  size_t steps = 0;
  for (const std::vector<Step>* list : {&cut.steps.input_gradient, &cut.steps.weight_gradient})
    for (const Step& step : *list) {
      ++steps;
      for (const ir::ValueId value : outputs_of_step(graph, step)) made_by[value] = steps;
    }
  std::map<ir::ParamId, size_t> last;
  for (const ir::GradientShare& share : cut.steps.shares)
    if (const size_t made = made_by.contains(share.value) ? made_by[share.value] : steps; made > last[share.param])
      last[share.param] = made;
  std::vector<size_t> result;
  for (const ir::ParamId param : cut.params) result.push_back(last.contains(param) ? last[param] : 0);
  return result;
}

}  // namespace graphpipe::codegen
