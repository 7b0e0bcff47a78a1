#include "partitioner/baselines/exhaustive.h"

#include <algorithm>
#include <climits>
#include <limits>

#include "cost/lower_bound.h"
#include "partitioner/candidates.h"
#include "partitioner/heterogeneous/device_order.h"
#include "support/digraph.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

/// With up to this many devices all distinct placements are tried, with more only a few (heterogeneous/device_order.h).
constexpr size_t kMaxPlacedDevices = 6;
/// Each time that this many plans have been tried, all but the best few are dropped.
constexpr int64_t kMaxKept = 1 << 16;
constexpr size_t kFewKept = 1 << 8;

/// Whether places in other groups of links are tried for equal devices.
enum class Places : uint8_t { kInAllGroups, kInOrder };

/// The orders of the devices that give different plans.
class DistinctOrders {
 public:
  DistinctOrders(const PlanRequest& request, Places places)
      : levels_(request.cluster->levels), classes_(device_classes(*request.graph, *request.cluster)), places_(places) {
    if (classes_.size() > kMaxPlacedDevices || !request.replicas.empty()) return;
    used_.assign(classes_.size(), false);
    extend();
  }
  std::vector<std::vector<ir::DeviceId>> take() { return std::move(orders_); }

 private:
  void extend() {
    if (order_.size() == classes_.size()) return orders_.push_back(order_);
    for (size_t device = 0; device < classes_.size(); ++device) {
      if (used_[device] || stands_for_earlier(device)) continue;
      used_[device] = true;
      order_.push_back(ir::DeviceId(device));
      extend();
      order_.pop_back();
      used_[device] = false;
    }
  }

  /// Whether a device before this one is as fast, has as much memory, and the same links to all that have been used.
  bool stands_for_earlier(size_t device) const {
    for (size_t other = 0; other < device; ++other)
      if (!used_[other] && classes_[other] == classes_[device] && may_change_places(other, device)) return true;
    return false;
  }

  bool may_change_places(size_t a, size_t b) const {
    if (places_ == Places::kInOrder || levels_.empty()) return true;
    size_t level = 0;
    while (level + 1 < levels_.size() && a / group_at(level) != b / group_at(level)) ++level;
    if (level == 0) return true;
    // Their groups of the level below change places, with all that they hold.
    const size_t size = group_at(level - 1), one = a / size * size, other = b / size * size;
    for (size_t i = 0; i < size; ++i) {
      if (one + i >= used_.size() || other + i >= used_.size()) return false;
      if (used_[one + i] || used_[other + i] || classes_[one + i] != classes_[other + i]) return false;
    }
    return true;
  }
  size_t group_at(size_t level) const { return static_cast<size_t>(levels_[level].group); }

  const std::vector<ir::LinkLevel>& levels_;
  const std::vector<int> classes_;
  const Places places_;
  std::vector<bool> used_;
  std::vector<ir::DeviceId> order_;
  std::vector<std::vector<ir::DeviceId>> orders_;
};

class Enumerator {
 public:
  Enumerator(const PlanRequest& request, const NodeGroups& groups, const DeviceBudget& budget, int64_t max_plans,
             Places places)
      : request_(request),
        groups_(groups),
        budget_(budget),
        max_plans_(max_plans),
        largest_size_(static_cast<int>(std::min<int64_t>(micro_batch_sizes(request).back().count, INT_MAX))),
        deadline_(request.time_limit, request.cancel),
        candidates_(request),
        stage_of_(groups.nodes.size(), 0),
        orders_(DistinctOrders(request, places).take()),
        placements_(static_cast<int64_t>(std::max<size_t>(orders_.size(), 1 + other_placements(request)))) {
    for (const auto& nodes : groups.nodes) {
      double seconds = 0;
      for (const ir::PlanNodeId node : nodes)
        seconds += cost::cheapest_seconds_per_sample(request.graph->nodes[node], request.graph->batch);
      group_seconds_.push_back(seconds * static_cast<double>(request.graph->batch.count));
    }
  }

  Result<PlanAnswer> run(size_t max_returned) {
    const Stopwatch watch;
    // Counting takes a fraction of trying, which would be in vain where there are too many.
    if (max_plans_ < std::numeric_limits<int64_t>::max()) {
      counts_ = true;
      assign(0, 0);
      counts_ = false;
    }
    if (plans_ <= max_plans_) {
      plans_ = 0;
      assign(0, 0);
    }
    if (plans_ > max_plans_)
      return Diagnostic{.code = Code::kLimitExceeded,
                        .message = text("there are more than ", max_plans_, " plans to try"),
                        .hint = "use another planner"};
    return candidates_.answer(!deadline_.passed(), watch.seconds(), kFewKept, max_returned);
  }

 private:
  /// Group `group` joins one of the `stages` so far, or opens the next.
  void assign(size_t group, size_t stages) {
    if (plans_ > max_plans_ || deadline_.passed()) return;
    if (group == groups_.nodes.size()) {
      if (request_.stages && stages != static_cast<size_t>(*request_.stages)) return;
      stage_seconds_.assign(stages, 0);
      for (size_t i = 0; i < stage_of_.size(); ++i) stage_seconds_[stage_of_[i]] += group_seconds_[i];
      std::vector<int> devices(stages, 1);
      if (!has_cycle(stages)) replicate(devices, 0, budget_.devices - static_cast<int>(stages));
      return;
    }
    const size_t max_stage = std::min(stages, static_cast<size_t>(budget_.devices) - 1);
    for (size_t stage = 0; stage <= max_stage; ++stage) {
      stage_of_[group] = stage;
      assign(group + 1, std::max(stages, stage + 1));
    }
  }

  bool has_cycle(size_t stages) const {
    EdgeList edges;
    for (const auto& [group, next] : groups_.graph.edges())
      if (stage_of_[group] != stage_of_[next])
        edges.emplace_back(static_cast<uint32_t>(stage_of_[group]), static_cast<uint32_t>(stage_of_[next]));
    return first_on_cycle(stages, edges).has_value();
  }

  /// Gives this stage and those behind it up to `left` devices beside the one that each has.
  void replicate(std::vector<int>& devices, size_t stage, int left) {
    if (left < 0 || plans_ > max_plans_ || deadline_.passed()) return;
    if (stage == devices.size()) return try_sizes(devices);
    const int max_replicas = std::min({budget_.largest_replication, 1 + left, largest_size_});
    for (int count = 1; count <= max_replicas; ++count) {
      // With so few replicas the stage's work alone takes as long as the known step. Forced replicas are applied later.
      if (request_.replicas.empty() && stage_seconds_[stage] / count >= request_.known_step) continue;
      devices[stage] = count;
      replicate(devices, stage + 1, left + 1 - count);
    }
    devices[stage] = 1;
  }

  void try_sizes(const std::vector<int>& devices) {
    for (Samples size : micro_batch_sizes(request_)) {
      if (*std::ranges::max_element(devices) > size.count) continue;
      plans_ += placements_;
      if (counts_) continue;
      std::vector<FoundStage> stages(devices.size());
      for (size_t stage = 0; stage < stages.size(); ++stage) {
        stages[stage].devices = devices[stage];
        stages[stage].micro_batch = size;
      }
      for (size_t group = 0; group < stage_of_.size(); ++group) {
        auto& nodes = stages[stage_of_[group]].nodes;
        nodes.insert(nodes.end(), groups_.nodes[group].begin(), groups_.nodes[group].end());
      }
      if (orders_.size() < 2) candidates_.add(stages);
      for (const std::vector<ir::DeviceId>& order : orders_)
        if (orders_.size() > 1) candidates_.add(stages, order);
    }
    if (counts_ || plans_ < next_drop_) return;
    candidates_.drop_all_but(kFewKept);
    next_drop_ = plans_ + kMaxKept;
  }

  /// Where devices are too many for all orders.
  static size_t other_placements(const PlanRequest& request) {
    return devices_differ(*request.graph, *request.cluster) ? max_other_placements(*request.cluster) : 0;
  }

  const PlanRequest& request_;
  const NodeGroups& groups_;
  const DeviceBudget budget_;
  const int64_t max_plans_;
  /// Samples of the largest micro-batch: more replicas have none.
  const int largest_size_;
  int64_t plans_ = 0, next_drop_ = kMaxKept;
  bool counts_ = false;  // instead of trying
  Deadline deadline_;
  Candidates candidates_;
  std::vector<size_t> stage_of_;
  /// Least seconds of a step's work, by group and by stage.
  std::vector<double> group_seconds_, stage_seconds_;
  std::vector<std::vector<ir::DeviceId>> orders_;
  /// Plans that differ in their devices alone.
  const int64_t placements_;
};

Result<PlanAnswer> try_plans(const PlanRequest& request, int64_t max_plans, size_t max_returned) {
  const NodeGroups groups = group_nodes(*request.graph);
  if (groups.nodes.size() > kMaxExhaustiveGroups)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .message = text("exhaustive search takes at most ", kMaxExhaustiveGroups,
                                      " nodes, this graph has ", groups.nodes.size()),
                      .hint = "use the planner graphpipe or sequential"};
  GP_TRY(const DeviceBudget budget, device_budget(request));
  Result<PlanAnswer> answer = Enumerator(request, groups, budget, max_plans, Places::kInAllGroups).run(max_returned);
  if (answer.ok() || answer.problems().front().code != Code::kLimitExceeded) return answer;
  return Enumerator(request, groups, budget, max_plans, Places::kInOrder).run(max_returned);
}

}  // namespace

Result<PlanAnswer> plan_exhaustive(const PlanRequest& request) {
  return try_plans(request, std::numeric_limits<int64_t>::max(), kFewKept);
}

Result<PlanAnswer> plan_exhaustive_within(const PlanRequest& request, int64_t max_plans) {
  return try_plans(request, max_plans, kMaxReturned);
}

}  // namespace graphpipe::partitioner
