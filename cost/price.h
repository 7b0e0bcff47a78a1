#pragma once
// Operator graph -> plan graph: the cost of each forward node, together with the backward that serves it.
//
// Analytic cost of one operator: launch overhead + max(flops / rate, bytes moved / memory bandwidth), a roofline with
// the constants of the slowest device of the cluster, and of each kind of device if they differ. Where weights have a
// bandwidth of their own, and a model more of them than caches hold, their bytes / bandwidth are added: no kernel of a
// CPU hides them behind its arithmetic. Nor do its kernels of convolutions hide what they move. It is evaluated at 1,
// 2, 4, ... samples and at the batch, and interpolated in between. A measured profile replaces it if given, for all
// devices alike.

#include "cost/sample_scopes.h"
#include "ir/cluster.h"
#include "ir/graph.h"
#include "ir/plan_graph.h"
#include "ir/profile.h"
#include "wire/optimizers.h"

namespace graphpipe::cost {

struct PriceRequest {
  Samples batch{1};
  /// Bytes of optimizer state per byte of trainable weight: 0 SGD, 1 with momentum, 2 AdamW.
  double optimizer_state_per_weight_byte = 0;
  /// What updates the weights; null: plain SGD.
  const wire::OptimizerEntry* optimizer = nullptr;
  /// Whether the optimizer only changes the rows of a table that were looked up.
  bool updates_rows = false;
  /// Measured seconds; null for analytic costs.
  const ir::Profile* profile = nullptr;
  /// Which samples are seen by nodes that work on several together.
  ScopeChoice scopes;
  /// For every plan made from it: how its stages wait, and whether every micro-batch is one sample.
  ir::Execution execution = ir::Execution::kGraph;
  bool one_sample = false;
};

/// Needs: a verified graph, differentiated or forward only.
/// - A plan node is a forward node with an output that depends on the samples. Its I and W costs are those of the
///   gradient nodes that serve it.
/// - Computations on weights alone are shared out over the plan nodes that read their results, and the parameters below
///   become those nodes' weights: a stage repeats what it needs.
/// - What works on samples together has its scope (sample_scopes.h); what adds up over samples to the loss shares a
///   stage.
/// - A saved view counts as the value that it looks at. Data that a gradient reads again is in the stash of the node
///   that reads it. A node's workspace is what is alive beside the stash while it runs, in the whole model
///   (transients.h): never less than in its stage.
/// Errors (kBadProfile): the profile misses operators of the model. (kUnsupportedOp): an operator without an entry.
/// (kUntrainable): a batch of fewer samples than a node needs together.
Result<ir::PlanGraph> price(const ir::Graph& graph, const ir::Cluster& cluster, const PriceRequest& request);

}  // namespace graphpipe::cost
