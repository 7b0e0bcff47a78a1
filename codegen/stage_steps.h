#pragma once
// Which stage runs which node: the first half of cut_stages.

#include "codegen/cut_stages.h"

namespace graphpipe::codegen {

/// Which stages the nodes run in.
struct NodePlaces {
  /// For forward nodes with samples, and the gradient nodes and sums that serve them; none for repeated nodes.
  IdMap<ir::NodeId, ir::StageId> stage_of;
};

NodePlaces place_nodes(const ir::Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages);

/// `joins_backward`: the weight gradients are steps of the input gradient's function, each as early as possible.
Result<StageSteps> steps_of_stage(const ir::Graph& graph, const NodePlaces& places, ir::StageId stage,
                                  bool joins_backward);

/// The inputs that a step actually reads: for a sum with one operand, that operand.
std::vector<ir::ValueId> inputs_of_step(const ir::Graph& graph, const Step& step);
/// The values that a step produces: those of its node, or the single zero.
std::vector<ir::ValueId> outputs_of_step(const ir::Graph& graph, const Step& step);

}  // namespace graphpipe::codegen
