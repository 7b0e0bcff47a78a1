#include "partitioner/graphpipe/planner.h"

#include <algorithm>
#include <functional>
#include <set>

#include "cost/lower_bound.h"
#include "cost/update_time.h"
#include "partitioner/auto/planner.h"
#include "partitioner/graphpipe/micro_batch_sweep.h"
#include "partitioner/heterogeneous/device_order.h"
#include "partitioner/several_searches.h"
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
void search_over(const PlanRequest& request, bool line, size_t level, Deadline& deadline, Candidates& found) {
  // Within groups stages are to end where little has to leave them. `auto`, which climbs from what it gets, gets plans
  // that need not keep to groups, and asks for the others last.
  const bool in_groups = !request.beside_sequential && level + 1 < request.cluster->levels.size();
  // Where memory is tight, the in-flight numbers have to be searched too, and that takes a smaller graph.
  for (size_t parts : {parts_for(*request.cluster), size_t{48}}) {
    const SearchGraph graph = search_graph(*request.graph, parts, in_groups);
    const PlanRequest small = small_request(request, graph.small.graph);
    Candidates small_found(small);
    search_spaces(small, spaces_of(graph, line), {.level = level, .in_groups = in_groups}, deadline, small_found);
    if (updates_matter(small, small_found.min_step()))
      search_spaces(small, spaces_of(graph, line), {.counts_updates = true, .level = level, .in_groups = in_groups},
                    deadline, small_found);
    const bool is_exact = graph.small.members.size() == group_nodes(*request.graph).nodes.size();
    for (const PlanCandidate& candidate :
         small_found.best(is_exact ? std::numeric_limits<size_t>::max() : kMaxExpanded))
      add_expanded(request, graph.small, candidate.assignment, found);
    found.absorb_refusals(small_found);
    if (is_exact || !found.best(1).empty() || deadline.passed()) break;
  }
}

/// The best plans with their stages on other devices.
Candidates placed_otherwise(const PlanRequest& request, const std::vector<PlanCandidate>& plans) {
  Candidates placed(request);
  for (const PlanCandidate& plan : plans) {
    ir::Assignment assignment = plan.assignment;
    const auto stages = build_stage_graph(*request.graph, assignment);
    if (!stages.ok()) continue;
    for (const ir::Assignment& other : other_placements(*request.graph, *request.cluster, *stages, assignment))
      placed.add(other);
  }
  return placed;
}

/// Numbers of devices that fill groups of the inner levels and leave others out, descending.
std::vector<int> counts_of_whole_groups(const ir::Cluster& cluster) {
  std::set<int, std::greater<>> counts;
  const int all = static_cast<int>(cluster.devices.size());
  for (size_t level = 0; level + 1 < cluster.levels.size(); ++level)
    for (int count = std::max(1, cluster.levels[level].group); count < all; count *= 2) counts.insert(count);
  return {counts.begin(), counts.end()};
}

/// The search of `graphpipe` or, over a line, of `sequential`. It decides where stages begin before it knows on which
/// devices they lie, and asks for the smallest bottleneck. So it is asked once for each level of links, as if all
/// messages between stages took that one, and with hosts left out, whose links may cost more than their devices save;
/// the simulator, in which each message takes its own link, has the last word.
class Search {
 public:
  Search(const PlanRequest& request, bool line)
      : request_(request), line_(line), deadline_(request.time_limit, request.cancel) {}

  Result<PlanAnswer> run() {
    GP_TRY_VOID(device_budget(request_));
    on(*request_.cluster);
    if (best_ && !request_.beside_sequential) on_fewer_devices();
    if (!best_) return refusals_;
    best_->bound = cost::plan_bound(*request_.graph, *request_.cluster).time_per_sample();
    best_->complete = best_->complete && !deadline_.passed();
    best_->search_seconds = watch_.seconds();
    return std::move(*best_);
  }

 private:
  static constexpr size_t kMaxPlacedOtherwise = 8;

  void on(const ir::Cluster& cluster) {
    // The outermost level first: it is the one that the paper has.
    for (const size_t level : levels_to_price_at(cluster))
      if (!best_ || !deadline_.passed()) at_level(cluster, level);
  }

  /// For plans on these devices that are faster than the best one, in the time that is left.
  PlanRequest rest_on(const ir::Cluster& cluster) const {
    PlanRequest rest = with_time_left(request_, watch_);
    rest.cluster = &cluster;
    if (best_) rest.known_step = std::min(rest.known_step, best_->candidates.front().step_seconds);
    return rest;
  }

  void at_level(const ir::Cluster& cluster, size_t level) {
    const PlanRequest rest = rest_on(cluster);
    Candidates found(rest);
    search_over(rest, line_, level, deadline_, found);
    // Stages of a line may take parts of any branches, and fit where those of the tree do not.
    const bool needs_line = !line_ && !request_.beside_sequential && found.best(1).empty();
    if (needs_line && !deadline_.passed()) search_over(rest, true, level, deadline_, found);
    const std::vector<PlanCandidate> plans = found.best(kMaxPlacedOtherwise);
    take(found.answer(!deadline_.passed(), 0));
    if (cluster.levels.size() == 1 || plans.empty() || !request_.replicas.empty() || deadline_.passed()) return;
    const PlanRequest last = rest_on(cluster);
    take(placed_otherwise(last, plans).answer(true, 0));
  }

  void on_fewer_devices() {
    if (!request_.replicas.empty() || devices_differ(*request_.graph, *request_.cluster)) return;
    for (const int count : counts_of_whole_groups(*request_.cluster)) {
      if (deadline_.passed() || count < request_.stages.value_or(0)) return;
      const ir::Cluster part = ir::first_devices(*request_.cluster, count);
      if (min_step_of_plans(request_, part) < best_->candidates.front().step_seconds) on(part);
    }
  }

  void take(Result<PlanAnswer> answer) {
    if (answer.ok()) merge_answers(best_, std::move(*answer));
    else if (refusals_.empty()) refusals_ = answer.problems();
  }

  const PlanRequest& request_;
  const bool line_;
  const Stopwatch watch_;
  Deadline deadline_;
  std::optional<PlanAnswer> best_;
  Diagnostics refusals_;
};

/// Sizes that may differ need not: plans of one size are timed beside those of several that look better. `auto`
/// searches them by itself.
Result<PlanAnswer> search_sizes(const PlanRequest& request, bool line) {
  if (!request.micro_batch_per_stage || request.micro_batch || request.beside_sequential)
    return Search(request, line).run();
  const Stopwatch watch;
  PlanRequest equal = request;
  equal.micro_batch_per_stage = false;
  equal.time_limit /= 2;
  Result<PlanAnswer> of_equal = Search(equal, line).run();
  PlanRequest rest = with_time_left(request, watch);
  if (!of_equal.ok()) return Search(rest, line).run();
  rest.known_step = std::min(rest.known_step, of_equal->candidates.front().step_seconds);
  std::optional<PlanAnswer> best = std::move(*of_equal);
  Result<PlanAnswer> mixed = Search(rest, line).run();
  if (mixed.ok()) merge_answers(best, std::move(*mixed));
  else if (mixed.problems().front().code == Code::kInterrupted) best->complete = false;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

}  // namespace

size_t parts_for(const ir::Cluster& cluster) { return std::clamp(cluster.devices.size(), kFewestParts, kMaxParts); }

SearchGraph search_graph(const ir::PlanGraph& graph, size_t parts, bool keeps_narrow_ends) {
  const NodeGroups groups = group_nodes(graph);
  SearchGraph result;
  const bool is_small = groups.nodes.size() <= kMaxGroups && groups.nodes.size() <= 4 * parts;
  const CoarsenLimits limits{.parts = static_cast<double>(parts), .keeps_narrow_ends = keeps_narrow_ends};
  result.small = contract(graph, is_small ? groups.nodes : coarsen(graph, groups, limits));
  result.groups = group_nodes(result.small.graph);
  std::optional<SpTree> tree = decompose(result.groups.graph);
  if (!tree) tree = make_series_parallel(result.groups.graph, result.groups.weight);
  result.tree = in_lanes(*tree, kMaxLanes, result.groups.weight);
  return result;
}

std::vector<size_t> levels_to_price_at(const ir::Cluster& cluster) {
  std::vector<size_t> levels{cluster.levels.size() - 1};
  const auto bandwidth = [&](size_t level) { return cluster.levels[level].bandwidth.count; };
  for (size_t level = cluster.levels.size() - 1; level-- > 0;)
    if (bandwidth(level) > bandwidth(levels.back())) levels.push_back(level);
  return levels;
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

Result<PlanAnswer> plan_graphpipe(const PlanRequest& request) { return search_sizes(request, false); }

Result<PlanAnswer> plan_sequential(const PlanRequest& request) { return search_sizes(request, true); }

}  // namespace graphpipe::partitioner
