#pragma once
// Between the two worlds of planners: a layer graph as a plan graph (so that an imported profile is planned and
// simulated like a priced model) and a plan graph as a layer graph (so that planners of layer graphs plan models).

#include "cost/layer_cost.h"
#include "ir/assignment.h"
#include "ir/cluster.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// A layer graph as a plan graph. One sample is one unit of the profiled work; prices are linear in the samples.
struct ConvertedLayers {
  ir::PlanGraph graph;
  /// Layers that share a device by their class, and layers on a cycle between such, become one node. A backward layer
  /// is the backward of the node that it belongs to.
  IdMap<ir::LayerId, ir::PlanNodeId> node_of;
};

/// `batch`: units of work in one step. With a plan, each layer has the price of its stage: degree, variant, CPU, and
/// the collectives of its degree at the stage's boundaries (Piper's sync bytes) at `bandwidth`, once in each direction.
/// Where a file does not tell forward from backward, a third is forward; half of a backward with weights is their
/// gradient. Layers keep what they put out until their backward. Needs: a verified graph.
ConvertedLayers convert_layers(const ir::LayerGraph& graph, Samples batch, const ir::LayerPlan* plan = nullptr,
                               double bandwidth = std::numeric_limits<double>::infinity());

/// The machine as a cluster: accelerators, then CPUs that all links reach at the outermost level's bandwidth. A limit
/// of memory that is infinite becomes 2^60 bytes.
ir::Cluster cluster_of(const LayerMachine& machine);

/// A plan of layers as an assignment: replicas of all levels and copies together take whole units of work in turn; of
/// `degree` devices, which do the same at the same time, the first stands for all. Errors (kBadPlan): layers of one
/// node are in different stages.
Result<ir::Assignment> assignment_of(const ConvertedLayers& converted, const ir::LayerPlan& plan,
                                     const LayerMachine& machine);

/// Devices of all copies of a stage: replicas of every level around it and of the whole pipeline, one per replica.
std::vector<int> devices_of(const ir::LayerPlan& plan, size_t stage, const LayerMachine& machine);

/// A plan graph as a layer graph with the prices of one micro-batch; layer i is node i. Layers that can recompute have
/// a second variant. `bandwidth`: bytes per second between an accelerator and host memory.
ir::LayerGraph layer_graph_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth);

}  // namespace graphpipe::cost
