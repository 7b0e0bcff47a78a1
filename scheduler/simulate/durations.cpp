#include "scheduler/simulate/durations.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cost/stage_cost.h"
#include "cost/update_time.h"
#include "support/exact_integer.h"

namespace graphpipe::scheduler {

Ticks to_ticks(Seconds time, double ticks_per_second) {
  constexpr auto kLargest = static_cast<double>(kMaxExactInteger);
  const double ticks = time.count * ticks_per_second;
  return Ticks(std::llround(std::min(std::max(ticks, 0.0), kLargest)));
}

Durations::Durations(const StageGraph& graph, double ticks_per_second, Seconds action)
    : graph_(graph),
      ticks_per_second_(ticks_per_second),
      action_(to_ticks(action, ticks_per_second)),
      known_(graph.stages.size()) {}

const Durations::Known& Durations::look_up(size_t stage, int64_t samples) {
  std::vector<Known>& known = known_[stage];
  for (const Known& entry : known)
    if (entry.samples == samples) return entry;
  const ir::Stage& prices = graph_.stages[StageId(stage)];
  const auto ticks = [&](const ir::SampleFunction& price) {
    return to_ticks(Seconds(price.at(Samples(samples))), ticks_per_second_);
  };
  known.push_back({samples, ticks(prices.forward), ticks(prices.input_gradient), ticks(prices.weight_gradient)});
  return known.back();
}

Ticks Durations::of(const Action& action) {
  const Known& known = look_up(static_cast<size_t>(action.stage), action.range.size());
  switch (action.op) {
    case ActionOp::kForward:
    case ActionOp::kRecompute:
      return action_ + known.forward;
    case ActionOp::kBackward:
      return action_ + known.input_gradient + known.weight_gradient;
    case ActionOp::kInputGradient:
      return action_ + known.input_gradient;
    case ActionOp::kWeightGradient:
      return action_ + known.weight_gradient;
    default:
      return Ticks(0);
  }
}

double fine_ticks_per_second(const StageGraph& graph) {
  double longest = 0;
  for (const ir::Stage& stage : graph.stages)
    longest = std::max(longest, stage.forward.at(stage.choice.micro_batch) +
                                    stage.input_gradient.at(stage.choice.micro_batch) +
                                    stage.weight_gradient.at(stage.choice.micro_batch));
  return longest > 0 ? kTicksPerUnit / longest : 1;
}

std::vector<Ticks> reduction_lengths(const StageGraph& graph, const ir::Cluster& cluster,
                                     const IdMap<StageId, int>& groups, double ticks_per_second) {
  std::vector<Ticks> lengths(graph.stages.size());
  std::map<std::pair<int, ir::DeviceId>, Ticks> of_device;
  for (const StageId stage : graph.stage_ids()) {
    const ir::Stage& s = graph.stages[stage];
    if (groups[stage] < 0) continue;
    const Ticks length = to_ticks(cost::exchange_time(cluster, s), ticks_per_second);
    for (const ir::DeviceId device : s.choice.devices) of_device[{groups[stage], device}] += length;
  }
  for (const auto& [place, sum] : of_device) {
    Ticks& length = lengths[static_cast<size_t>(place.first)];
    length = std::max(length, sum);
  }
  for (const ir::SharedWeights& shared : graph.shared)
    if (const int group = groups[shared.stages.front()]; group >= 0)
      lengths[static_cast<size_t>(group)] += to_ticks(cost::copies_time(graph, cluster, shared), ticks_per_second);
  return lengths;
}

}  // namespace graphpipe::scheduler
