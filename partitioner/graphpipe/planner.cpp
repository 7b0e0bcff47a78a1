#include "partitioner/graphpipe/planner.h"

#include <algorithm>

#include "cost/update_time.h"
#include "partitioner/graphpipe/micro_batch_sweep.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

constexpr size_t kMaxGroups = 400;
constexpr size_t kFewestParts = 128, kMaxParts = 512;
/// More parallel branches than this are packed into so many lanes, each of which runs its branches one after the other.
constexpr size_t kMaxLanes = 32;
/// Plans of the contracted graph that are looked at on the large one.
constexpr size_t kMaxExpanded = 12;

std::vector<SearchSpace> spaces_of(const SearchGraph& graph, bool line) {
  std::vector<SearchSpace> spaces{line ? space_of_line(graph.groups, 0) : space_of_tree(graph.tree, graph.groups, 0)};
  find_shapes(graph.small.graph, spaces.front());
  return spaces;
}

/// Whether updates of weights, divided evenly, take a noticeable part of the best step so far.
bool updates_matter(const PlanRequest& request, double step) {
  constexpr double kNoticeable = 0.01;
  const double devices = static_cast<double>(request.cluster->devices.size());
  return !(cost::update_of_all(*request.graph, *request.cluster).count / devices < kNoticeable * step);
}

/// Over the graph's tree, or over the line of its nodes.
void search_over(const PlanRequest& request, bool line, Deadline& deadline, Candidates& found) {
  // Where memory is tight, the in-flight numbers have to be searched too, and that takes a smaller graph.
  for (size_t parts : {parts_for(*request.cluster), size_t{48}}) {
    const SearchGraph graph = search_graph(*request.graph, parts);
    const PlanRequest small = small_request(request, graph.small.graph);
    Candidates small_found(small);
    search_spaces(small, spaces_of(graph, line), {}, deadline, small_found);
    if (updates_matter(small, small_found.min_step()))
      search_spaces(small, spaces_of(graph, line), {.counts_updates = true}, deadline, small_found);
    const bool is_exact = graph.small.members.size() == group_nodes(*request.graph).nodes.size();
    for (const PlanCandidate& candidate :
         small_found.best(is_exact ? std::numeric_limits<size_t>::max() : kMaxExpanded))
      add_expanded(request, graph.small, candidate.assignment, found);
    found.absorb_refusals(small_found);
    if (is_exact || !found.best(1).empty() || deadline.passed()) break;
  }
}

Result<PlanAnswer> search(const PlanRequest& request, bool line) {
  const Stopwatch watch;
  GP_TRY_VOID(device_budget(request));
  Deadline deadline(request.time_limit, request.cancel);
  Candidates found(request);
  search_over(request, line, deadline, found);
  // Stages of a line may take parts of any branches, and fit where those of the tree do not.
  const bool needs_line = !line && !request.beside_sequential && found.best(1).empty();
  if (needs_line && !deadline.passed()) search_over(request, true, deadline, found);
  return found.answer(!deadline.passed(), watch.seconds());
}

}  // namespace

size_t parts_for(const ir::Cluster& cluster) { return std::clamp(cluster.devices.size(), kFewestParts, kMaxParts); }

SearchGraph search_graph(const ir::PlanGraph& graph, size_t parts) {
  const NodeGroups groups = group_nodes(graph);
  SearchGraph result;
  const bool is_small = groups.nodes.size() <= kMaxGroups && groups.nodes.size() <= 4 * parts;
  result.small =
      contract(graph, is_small ? groups.nodes : coarsen(graph, groups, {.parts = static_cast<double>(parts)}));
  result.groups = group_nodes(result.small.graph);
  std::optional<SpTree> tree = decompose(result.groups.graph);
  if (!tree) tree = make_series_parallel(result.groups.graph, result.groups.weight);
  result.tree = in_lanes(*tree, kMaxLanes, result.groups.weight);
  return result;
}

PlanRequest small_request(const PlanRequest& request, const ir::PlanGraph& graph) {
  PlanRequest small = request;
  small.graph = &graph;
  small.evaluate = nullptr;
  small.manual = nullptr;
  return small;
}

void add_expanded(const PlanRequest& request, const CoarseGraph& small, const ir::Assignment& assignment,
                  Candidates& candidates) {
  ir::Assignment large = expand(small, request.graph->nodes.size(), assignment);
  if (request.replicas.empty()) {
    candidates.add(std::move(large));
    return;
  }
  // The large graph may number its stages in another order, so the replicas are forced again.
  std::vector<FoundStage> stages;
  for (const ir::StageChoice& choice : large.choice)
    stages.push_back({.micro_batch = choice.micro_batch, .k = choice.k, .recompute = choice.recompute});
  for (ir::PlanNodeId node : request.graph->node_ids()) stages[large.stage_of[node].index()].nodes.push_back(node);
  candidates.add(stages);
}

Result<PlanAnswer> plan_graphpipe(const PlanRequest& request) { return search(request, false); }

Result<PlanAnswer> plan_sequential(const PlanRequest& request) { return search(request, true); }

}  // namespace graphpipe::partitioner
