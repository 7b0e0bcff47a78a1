#include "scheduler/standalone/policy_schedule.h"

#include <algorithm>
#include <map>

#include "scheduler/analysis/schedule_bound.h"
#include "scheduler/lowering/items.h"
#include "support/sort_unique.h"

namespace graphpipe::scheduler {
namespace {

Diagnostic refused(std::string message, std::string hint) {
  return Diagnostic{.code = Code::kUsage, .message = std::move(message), .hint = std::move(hint)};
}

double units(Ticks ticks) { return static_cast<double>(ticks.count) / kTicksPerUnit; }

/// One replica's list of one stage.
struct ReplicaCounts {
  int64_t in_flight = 0, forwards = 0, waiting = 0;
  bool began_backward = false;
};

void count_in_flight(const StageGraph& graph, const Schedule& schedule, ScheduleMetrics& metrics) {
  metrics.in_flight_samples.assign(graph.stages.size(), 0);
  metrics.warm_up.assign(graph.stages.size(), 0);
  metrics.weight_lag.assign(graph.stages.size(), 0);
  bool split = false;
  // The replicas of a stage peak at different times; their sum is what the in-flight rules speak of.
  std::map<std::pair<int32_t, int32_t>, int64_t> peaks;
  for (const ir::Program& program : schedule.programs) {
    std::map<std::pair<int32_t, int32_t>, ReplicaCounts> counts;
    for (const Action& action : program.actions) {
      if (!ir::is_compute(action.op)) continue;
      const std::pair key(action.stage, action.replica);
      const auto stage = static_cast<size_t>(action.stage);
      ReplicaCounts& count = counts[key];
      if (action.op == ActionOp::kForward) {
        count.in_flight += action.range.size();
        peaks[key] = std::max(peaks[key], count.in_flight);
        if (!count.began_backward) metrics.warm_up[stage] = std::max(metrics.warm_up[stage], ++count.forwards);
      }
      if (ir::makes_input_gradient(action.op)) {
        count.began_backward = true;
        count.in_flight -= action.range.size();
      }
      if (action.op == ActionOp::kInputGradient) {
        split = true;
        metrics.weight_lag[stage] = std::max(metrics.weight_lag[stage], count.waiting);
        ++count.waiting;
      }
      if (action.op == ActionOp::kWeightGradient) --count.waiting;
    }
  }
  for (const auto& [key, peak] : peaks) metrics.in_flight_samples[static_cast<size_t>(key.first)] += peak;
  if (split) return;
  metrics.warm_up.clear();
  metrics.weight_lag.clear();
}

}  // namespace

Result<StageGraph> placed_for(const Policy& policy, StageGraph graph, int ranks) {
  GP_TRY_VOID(place_stages(graph, policy.shape, ranks));
  return as_taken_by(policy, std::move(graph));
}

StageGraph as_taken_by(const Policy& policy, StageGraph graph) {
  if (policy.forward_only) return without_backward(std::move(graph));
  // Only what is trained has versions.
  for (ir::Stage& stage : graph.stages)
    if (policy.asynchronous) stage.weight_bytes = stage.trainable_weight_bytes = stage.updated_weight_bytes = Bytes(1);
  return graph;
}

Status place_stages(StageGraph& graph, StageShape shape, int ranks) {
  const auto count = static_cast<int>(graph.stages.size());
  const bool both_ways = shape == StageShape::kBidirectional, folded = shape == StageShape::kV;
  if (shape == StageShape::kReplicas) {
    if (count != 1) return refused("this policy copies the whole model", "use one stage");
  } else if (count % ranks != 0 || (folded && count != 2 * ranks) || (both_ways && count != ranks)) {
    return refused(text(count, " stages do not go on ", ranks, " devices for this policy"),
                   folded      ? "use two stages per device: --chunks 2"
                   : both_ways ? "use one stage per device"
                               : "use as many stages on every device");
  }
  if (both_ways && ranks % 2 != 0)
    return refused("a chain that is fed from both ends needs an even number of devices", "change --ranks");
  for (const StageId stage : graph.stage_ids())
    place_in_shape(shape, stage, static_cast<size_t>(ranks), graph.stages[stage].choice);
  return Ok{};
}

Result<StageGraph> policy_schedule(const Policy& policy, const PolicySchedule& standalone) {
  const bool one_stage = policy.shape == StageShape::kReplicas;
  const int chunks = standalone.chunks > 0 ? standalone.chunks : policy.shape == StageShape::kV ? 2 : 1;
  StageGraph graph = chain_stages({.ranks = one_stage ? 1 : standalone.ranks,
                                   .chunks = chunks,
                                   .micro_batches = standalone.micro_batches,
                                   .forward = standalone.costs.forward,
                                   .input_gradient = standalone.costs.input_gradient,
                                   .weight_gradient = standalone.costs.weight_gradient});
  return placed_for(policy, std::move(graph), standalone.ranks);
}

ScheduleMetrics schedule_metrics(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule,
                                 const Timeline& timeline) {
  const TimelineMetrics times = metrics_of(schedule, timeline);
  ScheduleMetrics metrics{.makespan = units(times.makespan),
                          .longest_rank_span = units(times.longest_span),
                          .bubble_fraction = times.bubble_of_makespan,
                          .bubble_fraction_of_span = times.bubble_of_span,
                          .lower_bound = schedule_bound(graph, cluster, schedule),
                          .peak_to_weight_gradient = peak_in_flight(schedule, false),
                          .peak_to_input_gradient = peak_in_flight(schedule, true)};
  count_in_flight(graph, schedule, metrics);
  return metrics;
}

std::vector<std::vector<std::string>> stage_lists(const StageGraph& graph, const Schedule& schedule) {
  const ItemTable items(graph, schedule);
  // Numbers in the order of samples over all replicas of a stage.
  IdMap<StageId, std::vector<int64_t>> starts(graph.stages.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[static_cast<ItemIndex>(i)];
    starts[item.stage].push_back(item.range.first);
  }
  for (std::vector<int64_t>& list : starts) sort_unique(list);
  std::vector<std::vector<std::string>> lists(graph.stages.size());
  for (const ir::Program& program : schedule.programs)
    for (const Action& action : program.actions) {
      if (!ir::is_compute(action.op)) continue;
      const auto stage = static_cast<size_t>(action.stage);
      const std::vector<int64_t>& order = starts[StageId(stage)];
      const auto number = std::lower_bound(order.begin(), order.end(), action.range.first) - order.begin();
      lists[stage].push_back(text(ir::action_name(action.op), number));
    }
  return lists;
}

}  // namespace graphpipe::scheduler
