#include "partitioner/batch_stages.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::StageId;

/// Whether each node works on the whole batch or follows one that does, over nodes of its own stage only where a stage
/// is given for each.
IdMap<PlanNodeId, bool> at_or_below(const ir::PlanGraph& graph, const IdMap<PlanNodeId, StageId>* stage_of) {
  IdMap<PlanNodeId, bool> found(graph.nodes.size(), false);
  const ir::PlanAdjacency adjacency = adjacency_of(graph);
  // Node ids are in topological order.
  for (const PlanNodeId id : graph.node_ids()) {
    found[id] = graph.nodes[id].scope == ir::SampleScope::kBatch;
    for (const PlanNodeId before : adjacency.predecessors[id])
      if (stage_of == nullptr || (*stage_of)[before] == (*stage_of)[id]) found[id] = found[id] || found[before];
  }
  return found;
}

}  // namespace

IdMap<StageId, bool> batch_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  IdMap<StageId, bool> found(assignment.choice.size(), false);
  for (const PlanNodeId node : graph.node_ids())
    if (graph.nodes[node].scope == ir::SampleScope::kBatch) found[assignment.stage_of[node]] = true;
  return found;
}

void give_whole_batch(const ir::PlanGraph& graph, ir::Assignment& assignment) {
  const IdMap<StageId, bool> of_batch = batch_stages(graph, assignment);
  for (const StageId stage : ids<StageId>(assignment.choice.size())) {
    if (!of_batch[stage]) continue;
    assignment.choice[stage].micro_batch = graph.batch;
    assignment.choice[stage].k = 1;
  }
}

std::vector<PlanNodeId> batch_nodes_and_below(const ir::PlanGraph& graph) {
  std::vector<PlanNodeId> nodes;
  const IdMap<PlanNodeId, bool> found = at_or_below(graph, nullptr);
  for (const PlanNodeId node : graph.node_ids())
    if (found[node]) nodes.push_back(node);
  return nodes;
}

void separate_batch_nodes(const ir::PlanGraph& graph, ir::Assignment& assignment) {
  const IdMap<StageId, bool> of_batch = batch_stages(graph, assignment);
  const IdMap<PlanNodeId, bool> moves = at_or_below(graph, &assignment.stage_of);
  const auto stages = ids<StageId>(assignment.choice.size());
  for (const StageId stage : stages) {
    if (!of_batch[stage] || assignment.choice[stage].devices.size() < 2) continue;
    ir::StageChoice alone = assignment.choice[stage];
    alone.devices.resize(1);
    alone.mode = ir::ReplicaMode::kSplit;
    alone.shard_optimizer_state = false;
    bool stays = false;
    for (const PlanNodeId node : graph.node_ids())
      stays = stays || (assignment.stage_of[node] == stage && !moves[node]);
    if (!stays) {
      assignment.choice[stage] = std::move(alone);
      continue;
    }
    const StageId added = assignment.choice.push_back(std::move(alone));
    for (const PlanNodeId node : graph.node_ids())
      if (assignment.stage_of[node] == stage && moves[node]) assignment.stage_of[node] = added;
  }
  give_whole_batch(graph, assignment);
}

}  // namespace graphpipe::partitioner
