#pragma once
// The planners that search a space of stages (search_space.h): GraphPipe's over the series-parallel graph, and the same
// over one line of nodes, which is what planners that know only chains see. Graphs of more than 400 groups, or of more
// than four times the parts that pay off, are contracted first.

#include "partitioner/candidates.h"
#include "partitioner/graph/coarsen.h"
#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// GraphPipe (ASPLOS 2025), beyond it: costs in seconds of a step, any replica count, latency-aware in-flight numbers,
/// any DAG by cost-weighted conversion.
Result<PlanAnswer> plan_graphpipe(const PlanRequest& request);

/// The best cut of one line of nodes into stages with replicas.
Result<PlanAnswer> plan_sequential(const PlanRequest& request);

/// What searches see of a graph: itself, with groups as nodes, or a contraction of it.
struct SearchGraph {
  CoarseGraph small;
  NodeGroups groups;  // of small.graph
  SpTree tree;        // of the groups
};
/// Contracts a graph of more than 400 groups, or of more than 4 * parts, to about `parts` sets, which may keep narrow
/// ends (CoarsenLimits).
SearchGraph search_graph(const ir::PlanGraph& graph, size_t parts, bool keeps_narrow_ends = false);
/// The parts that pay off on so many devices: one each, from 128 to 512.
size_t parts_for(const ir::Cluster& cluster);

/// The request for a search of `graph` in its stead: without the simulator.
PlanRequest small_request(const PlanRequest& request, const ir::PlanGraph& graph);

/// The levels of links that searches price messages at, one after the other: the outermost, and those within that have
/// more bandwidth than the last one, at which other cuts are best.
std::vector<size_t> levels_to_price_at(const ir::Cluster& cluster);

/// Adds a plan of a contracted graph to candidates of the large one.
void add_expanded(const PlanRequest& request, const CoarseGraph& small, const ir::Assignment& assignment,
                  Candidates& candidates);

}  // namespace graphpipe::partitioner
