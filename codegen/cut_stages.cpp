#include "codegen/cut_stages.h"

#include <algorithm>
#include <iterator>

#include "codegen/stage_steps.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ParamId;
using ir::StageId;
using ir::ValueId;

/// What stage `reader` sends back to the producer of `value`: the contributions and sums that it computes and that
/// are used outside of it.
std::vector<ValueId> gradients_from(const Graph& graph, const NodePlaces& places, ValueId value, StageId reader) {
  std::vector<ValueId> result;
  if (value.index() >= graph.gradient_of().size()) return result;
  const ValueId total = graph.gradient_of()[value];
  if (!total.valid()) return result;
  const auto arises_in_reader = [&](ValueId gradient) {
    return places.stage_of[graph.value(gradient).producer] == reader;
  };
  // Walks the chain of sums from its end; each sum adds one contribution to the sum before it. Of (g0 + g1) + g2, a
  // reader that computes g1 and g2 sends both, one that computes g0 and g1 sends their sum.
  ValueId current = total;
  bool is_used_outside = true;
  while (true) {
    if (is_used_outside && arises_in_reader(current)) result.push_back(current);
    const NodeId producer = graph.value(current).producer;
    const ir::Node& node = graph.node(producer);
    if (node.sums_gradient_of != value) break;
    is_used_outside = places.stage_of[producer] != reader;
    if (is_used_outside && arises_in_reader(node.inputs[1])) result.push_back(node.inputs[1]);
    current = node.inputs[0];
  }
  std::ranges::sort(result);
  return result;
}

void add_boundaries(const Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages,
                    const NodePlaces& places, IdMap<StageId, StageCut>& cuts) {
  for (ir::EdgeId id : stages.edge_ids()) {
    const ir::StageEdge& edge = stages.edges[id];
    const ValueId value = plan.values[edge.value].source;
    GP_CHECK(value.valid());
    std::vector<ValueId> gradients = gradients_from(graph, places, value, edge.to);
    if (stages.execution == ir::Execution::kChain) {
      for (StageId below(edge.to.index() + 1); below.index() < stages.stages.size(); below = StageId(below.index() + 1))
        for (const ValueId gradient : gradients_from(graph, places, value, below)) gradients.push_back(gradient);
      std::ranges::sort(gradients);
    }
    cuts[edge.from].boundaries.push_back({id, false, value, gradients});
    cuts[edge.to].boundaries.push_back({id, true, value, gradients});
  }
}

/// Finds the parameters, data inputs, loss scale and loss that the stage's steps read or produce.
void add_leaves(const Graph& graph, StageCut& cut) {
  IdSet<ValueId> read(graph.value_count()), made(graph.value_count());
  for (const std::vector<Step>* steps : {&cut.steps.forward, &cut.steps.input_gradient, &cut.steps.weight_gradient})
    for (const Step& step : *steps) {
      for (ValueId input : inputs_of_step(graph, step)) read.insert(input);
      for (ValueId output : outputs_of_step(graph, step)) made.insert(output);
    }
  IdSet<ParamId> shared(graph.param_count());
  for (const ir::GradientShare& share : cut.steps.shares) shared.insert(share.param);
  for (ParamId param : graph.param_ids())
    if (read.contains(graph.param(param).value) || shared.contains(param)) cut.params.push_back(param);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ir::Input& input = graph.inputs()[i];
    if (!read.contains(input.value)) continue;
    if (input.role == ir::InputRole::kLossScale) cut.loss_scale = input.value;
    else cut.data.push_back(i);
  }
  for (const ir::Output& output : graph.outputs())
    if (output.role == ir::OutputRole::kLoss && made.contains(output.value)) cut.loss = output.value;
}

void add_outputs(const Graph& graph, const NodePlaces& places, IdMap<StageId, StageCut>& cuts) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    if (!ir::joins_samples(graph, output)) continue;
    const StageId stage = places.stage_of[graph.value(output.value).producer];
    if (stage.valid()) cuts[stage].outputs.push_back(i);
  }
}

}  // namespace

std::vector<ValueId> passed_values(const StageCut& cut) {
  std::vector<ValueId> in, out, both;
  for (const StageBoundary& boundary : cut.boundaries) (boundary.is_input ? in : out).push_back(boundary.value);
  for (std::vector<ValueId>* list : {&in, &out}) std::ranges::sort(*list);
  std::ranges::set_intersection(in, out, std::back_inserter(both));
  return both;
}

std::vector<ValueId> passed_gradients(const StageCut& cut) {
  std::vector<ValueId> in, out, both;
  for (const StageBoundary& boundary : cut.boundaries) {
    std::vector<ValueId>& list = boundary.is_input ? in : out;
    list.insert(list.end(), boundary.gradients.begin(), boundary.gradients.end());
  }
  for (std::vector<ValueId>* list : {&in, &out}) std::ranges::sort(*list);
  std::ranges::set_intersection(in, out, std::back_inserter(both));
  return both;
}

Result<IdMap<StageId, StageCut>> cut_stages(const Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages,
                                            const IdSet<StageId>& joined) {
  const NodePlaces places = place_nodes(graph, plan, stages);
  IdMap<StageId, StageCut> cuts(stages.stages.size());
  for (StageId stage : stages.stage_ids()) {
    GP_TRY(cuts[stage].steps, steps_of_stage(graph, places, stage, joined.contains(stage)));
    cuts[stage].recompute = stages.stages[stage].choice.recompute;
  }
  add_boundaries(graph, plan, stages, places, cuts);
  for (StageCut& cut : cuts) add_leaves(graph, cut);
  add_outputs(graph, places, cuts);
  return cuts;
}

}  // namespace graphpipe::codegen
