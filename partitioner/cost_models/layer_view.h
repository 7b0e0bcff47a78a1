#pragma once
// Plan graphs as the layers that planners of other projects work on, and their plans as devices.

#include "ir/imported_profile.h"
#include "partitioner/cost_models/layer_cost.h"

namespace graphpipe::partitioner {

/// The layers of a profile as its file lists them: layer i is node graph.file_order.nodes[i]. An output is as large as
/// the largest of its edges.
LayerGraph layers_of(const ir::ImportedProfile& profile);

/// A plan graph with the prices of one micro-batch; layer i is node i. Layers that can recompute have a second variant.
/// `bandwidth`: bytes per second between an accelerator and host memory. Needs: no backward halves.
LayerGraph layer_graph_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth);

/// Devices of all copies of a stage: replicas of every level around it and of the whole pipeline, one per replica.
std::vector<int> devices_of(const LayerPlan& plan, size_t stage, const LayerMachine& machine);

}  // namespace graphpipe::partitioner
