#pragma once
// The operator graph cut into stages: what each stage runs in each phase, what it receives and what it leaves.
//
// Rules. A forward node with samples, and the gradient nodes that serve it, run in its stage. What is the same for all
// samples is repeated in every function that reads it, and its gradient in every stage that has a share of it. A sum of
// gradients over readers runs in the stage of the last added reader if the partial sum is there too, otherwise in the
// producer's: the bits do not depend on the cut.

#include <vector>

#include "codegen/function_writer.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"

namespace graphpipe::codegen {

/// What one stage runs; slot_layout.h adds the slots of its values.
struct StageSteps {
  std::vector<Step> forward, input_gradient, weight_gradient;
  /// The shares of gradients that the stage's weight-gradient steps compute, in order.
  std::vector<ir::GradientShare> shares;
};

/// The stage's end of an edge. An edge has several gradient tensors if they are summed in the producer's stage.
struct StageBoundary {
  ir::EdgeId edge;
  bool is_input = false;
  ir::ValueId value;
  std::vector<ir::ValueId> gradients;
};

/// One stage of the cut. In a chain a value may be at both an input and an output boundary, and so may a gradient: the
/// stage's functions pass them on.
struct StageCut {
  StageSteps steps;
  std::vector<StageBoundary> boundaries;
  /// Parameters that the steps read or have shares of, ascending: StageEntry::params order.
  std::vector<ir::ParamId> params;
  /// Model inputs and labels that the steps read, as indices into Graph::inputs().
  std::vector<size_t> data;
  /// Valid if the stage computes the loss, or reads the loss scale.
  ir::ValueId loss, loss_scale;
  /// The model's outputs that the stage computes and whose samples can be told apart, as indices into Graph::outputs().
  std::vector<size_t> outputs;
  bool recompute = false;
  /// Whether the gradients come from LibTorch's autograd, over the forward run again (autograd_oracle.h).
  bool by_autograd = false;
};

/// Values that enter at one boundary and leave at another, and gradients that do so in the opposite direction.
/// Ascending.
std::vector<ir::ValueId> passed_values(const StageCut& cut);
std::vector<ir::ValueId> passed_gradients(const StageCut& cut);

/// The cut of each stage, by stage id. Stages in `joined` compute weight gradients in the function of the input
/// gradients (StageSteps::input_gradient): needs that the schedule never asks for one of the two alone. Needs: a graph
/// that passes::differentiate has finished (or a forward graph), priced as `plan`, cut as `stages`. Errors (kBadPlan):
/// a node without samples that reads one with samples.
Result<IdMap<ir::StageId, StageCut>> cut_stages(const ir::Graph& graph, const ir::PlanGraph& plan,
                                                const ir::StageGraph& stages, const IdSet<ir::StageId>& joined = {});

}  // namespace graphpipe::codegen
