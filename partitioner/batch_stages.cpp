#include "partitioner/batch_stages.h"

#include <algorithm>

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::StageId;

using NodeFlags = IdMap<PlanNodeId, bool>;

/// Adds the rest of each colocated set of which a node has been found. Returns whether anything was added.
bool take_colocated(const ir::PlanGraph& graph, NodeFlags& found) {
  bool changed = false;
  for (const auto& set : graph.colocated) {
    const auto missing = std::ranges::count_if(set, [&](PlanNodeId node) { return !found[node]; });
    if (missing == 0 || missing == std::ssize(set)) continue;
    for (const PlanNodeId node : set) found[node] = true;
    changed = true;
  }
  return changed;
}

bool is_of_batch(const ir::PlanNode& node) { return node.scope == ir::SampleScope::kBatch; }
bool is_alone(const ir::PlanNode& node) { return is_of_batch(node) && !node.may_have_replicas(); }

/// The stages that hold a node of this kind.
IdMap<StageId, bool> stages_with(const ir::PlanGraph& graph, const ir::Assignment& assignment,
                                 bool (*is)(const ir::PlanNode&)) {
  IdMap<StageId, bool> found(assignment.choice.size(), false);
  for (const PlanNodeId node : graph.node_ids())
    if (is(graph.nodes[node])) found[assignment.stage_of[node]] = true;
  return found;
}

/// Marks nodes of this kind, nodes that follow these, and nodes colocated with either. With `stage_of` only paths
/// within one stage count.
NodeFlags at_or_below(const ir::PlanGraph& graph, bool (*is)(const ir::PlanNode&),
                      const IdMap<PlanNodeId, StageId>* stage_of) {
  NodeFlags found(graph.nodes.size(), false);
  for (const PlanNodeId id : graph.node_ids()) found[id] = is(graph.nodes[id]);
  const ir::PlanAdjacency adjacency = adjacency_of(graph);
  do {
    // Node ids are in topological order.
    for (const PlanNodeId id : graph.node_ids())
      for (const PlanNodeId before : adjacency.predecessors[id])
        if (stage_of == nullptr || (*stage_of)[before] == (*stage_of)[id]) found[id] = found[id] || found[before];
  } while (take_colocated(graph, found));
  return found;
}

}  // namespace

IdMap<StageId, bool> batch_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  return stages_with(graph, assignment, is_of_batch);
}

IdMap<StageId, bool> summing_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  return stages_with(graph, assignment, [](const ir::PlanNode& node) { return node.sums_over_replicas; });
}

void give_whole_batch(const ir::PlanGraph& graph, ir::Assignment& assignment) {
  const IdMap<StageId, bool> of_batch = batch_stages(graph, assignment);
  for (const StageId stage : ids<StageId>(assignment.choice.size())) {
    if (!of_batch[stage]) continue;
    assignment.choice[stage].micro_batch = graph.batch;
    assignment.choice[stage].k = 1;
    assignment.choice[stage].mode = ir::ReplicaMode::kSplit;
  }
}

std::vector<PlanNodeId> batch_nodes_and_below(const ir::PlanGraph& graph) {
  std::vector<PlanNodeId> nodes;
  const NodeFlags found = at_or_below(graph, is_of_batch, nullptr);
  for (const PlanNodeId node : graph.node_ids())
    if (found[node]) nodes.push_back(node);
  return nodes;
}

void separate_batch_nodes(const ir::PlanGraph& graph, ir::Assignment& assignment) {
  const IdMap<StageId, bool> has_alone = stages_with(graph, assignment, is_alone);
  const NodeFlags moves = at_or_below(graph, is_alone, &assignment.stage_of);
  const auto stages = ids<StageId>(assignment.choice.size());
  for (const StageId stage : stages) {
    if (!has_alone[stage] || assignment.choice[stage].devices.size() < 2) continue;
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
