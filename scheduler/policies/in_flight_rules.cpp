#include "scheduler/policies/in_flight_rules.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cost/in_flight.h"
#include "cost/memory.h"
#include "support/integer_math.h"

namespace graphpipe::scheduler {

double attainable_period(const PolicyRequest& request) {
  const auto costs = cost::stage_costs(request.graph, request.cluster);
  const double period = cost::bottleneck_period(request.graph, request.cluster, costs);
  return std::max(period, std::numeric_limits<double>::min());
}

IdMap<StageId, Samples> in_flight_of(const PolicyRequest& request) {
  return request.in_flight.empty() ? cost::in_flight(request.graph, request.cluster).samples : request.in_flight;
}

IdMap<StageId, Samples> depth_in_flight(const StageGraph& graph, UseK use_k) {
  IdMap<StageId, int64_t> rounds(graph.stages.size());
  for (const StageId stage : graph.stage_ids()) {
    const ir::StageChoice& choice = graph.stages[stage].choice;
    rounds[stage] = choice.samples_of_turns() * (use_k == UseK::kYes ? choice.k : 1);
  }
  IdMap<StageId, Samples> numbers(graph.stages.size());
  // Stages are in topological order: successors are known first.
  for (size_t index = graph.stages.size(); index-- > 0;) {
    const StageId stage(index);
    int64_t samples = rounds[stage];
    for (const StageId reader : graph.successors(stage))
      samples = std::max(samples, numbers[reader].count + std::max(rounds[stage], rounds[reader]));
    const int64_t b = graph.stages[stage].choice.micro_batch.count;
    numbers[stage] = Samples(round_up(samples, b));
  }
  return numbers;
}

IdMap<StageId, Samples> replicas_in_flight(const StageGraph& graph) {
  IdMap<StageId, Samples> numbers(graph.stages.size());
  for (size_t index = graph.stages.size(); index-- > 0;) {
    const StageId stage(index);
    const ir::StageChoice& choice = graph.stages[stage].choice;
    int64_t below = 0;
    for (const StageId reader : graph.successors(stage)) below = std::max(below, numbers[reader].count);
    const int64_t b = choice.micro_batch.count;
    numbers[stage] = Samples(choice.samples_of_turns() + round_up(below, b));
  }
  return numbers;
}

int64_t items_per_replica(const StageGraph& graph, StageId stage, Samples samples) {
  const ir::StageChoice& choice = graph.stages[stage].choice;
  const int64_t micro_batches = std::max<int64_t>(1, ceil_div(samples.count, choice.micro_batch.count));
  if (choice.mode == ir::ReplicaMode::kSplit) return micro_batches;
  return ceil_div(micro_batches, static_cast<int64_t>(choice.devices.size()));
}

int64_t round_of(const ir::Stage& stage, UseK use_k) {
  return stage.choice.samples_of_turns() * (use_k == UseK::kYes ? stage.choice.k : 1);
}

std::optional<int64_t> common_round(const StageGraph& graph, UseK use_k, int64_t limit) {
  int64_t common = 1;
  for (const ir::Stage& stage : graph.stages) {
    common = std::lcm(common, round_of(stage, use_k));
    if (common > limit) return std::nullopt;
  }
  return common;
}

}  // namespace graphpipe::scheduler
