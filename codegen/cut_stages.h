#pragma once
// The operator graph cut along the stages: what each stage runs in each phase, what it is given and what it leaves.
//
// Rules. A forward node with samples, and the gradient nodes that serve it, run in its stage. What is the same for
// all samples is repeated in every function that reads it, its gradient in every stage that has a share of it. A sum
// of gradients over readers runs in the last added reader's stage if the sum so far is there too, else in the
// producer's: the bits do not depend on the cut.

#include <vector>

#include "codegen/function_writer.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"

namespace graphpipe::codegen {

/// What one stage runs; slot_layout.h adds the places of its values.
struct StageSteps {
  std::vector<Step> forward, input_gradient, weight_gradient;
  /// The shares of gradients that the stage's weight-gradient steps compute, in order.
  std::vector<ir::GradientShare> shares;
};

/// The stage's end of an edge. The gradients of one edge are several tensors where sums happen in the producer's stage.
struct StageBoundary {
  ir::EdgeId edge;
  bool is_input = false;
  ir::ValueId value;
  std::vector<ir::ValueId> gradients;
};

/// The stage's part. In a chain a value may be at an input and at an output boundary, and a gradient too: the stage's
/// functions pass them on.
struct StageCut {
  StageSteps steps;
  std::vector<StageBoundary> boundaries;
  /// Parameters that the steps read or have shares of, ascending: StageEntry::params order.
  std::vector<ir::ParamId> params;
  /// Model inputs and labels that the steps read, as indices into Graph::inputs().
  std::vector<size_t> data;
  /// Valid where the stage computes the loss, and where it reads the loss scale.
  ir::ValueId loss, loss_scale;
  /// The model's outputs that the stage computes and whose samples can be told apart, as indices into Graph::outputs().
  std::vector<size_t> outputs;
  bool recompute = false;
  /// The gradients come from LibTorch's autograd, over the forward run again (autograd_oracle.h).
  bool by_autograd = false;
};

/// Values that come in at one boundary and go out at another, and gradients that do so the other way round. Ascending.
std::vector<ir::ValueId> passed_values(const StageCut& cut);
std::vector<ir::ValueId> passed_gradients(const StageCut& cut);

/// The stages' parts, by stage id. Those of `joined` compute weight gradients in the function of the input gradients
/// (StageSteps::input_gradient): needs that the schedule never asks for one of both alone.
/// Needs: a graph that passes::differentiate has finished (or a forward graph), priced as `plan`, cut as `stages`.
/// Errors (kBadPlan): a node without samples that reads one with samples.
Result<IdMap<ir::StageId, StageCut>> cut_stages(const ir::Graph& graph, const ir::PlanGraph& plan,
                                                const ir::StageGraph& stages, const IdSet<ir::StageId>& joined = {});

}  // namespace graphpipe::codegen
