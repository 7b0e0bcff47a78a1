#pragma once
// What limits a plan, and what would remove the limit: one sentence next to every plan.

#include <string>
#include <string_view>

#include "cost/iteration_time.h"

namespace graphpipe::cost {

enum class LimitKind : uint8_t {
  kWork,            // the busiest device computes all the time
  kMixing,          // the same, and its stage cannot be replicated
  kLink,            // messages of a stage take longer than its compute
  kMemory,          // too few samples fit in flight to keep the bottleneck busy
  kWarmUpAndDrain,  // most of the step is filling and emptying the pipeline
  kReduction,       // most of the step is summing gradients over copies
  kUpdate,          // the largest part of the step is updating weights
  kOrder,           // the schedule takes much longer than the plan needs
};
/// "work", "mixing", "link", "memory", "warm-up", "reduction", "update", "order".
std::string_view name_of(LimitKind kind);

struct Limit {
  LimitKind kind = LimitKind::kWork;
  /// The stage in question.
  ir::StageId stage;
  /// Its share of the step, 0 to 1: for kMemory and kOrder the share that would be saved without the limit.
  double share = 0;
  /// What would remove the limit, with the numbers; one sentence without a newline, only our own text and numbers.
  std::string sentence;
};

/// The largest part of the step's closed form. `step_seconds` is the simulated step of the plan's schedule; if it is
/// more than kOrderSlack times the closed form, the order is the limit, or a link that is busy for longer than what the
/// order adds. `updates`: of the weights of a stage in a step, more than one with asynchronous policies.
/// `takes_replicas`: whether the policy orders stages that are given some.
inline constexpr double kOrderSlack = 1.25;
Limit limit_of(const ir::StageGraph& graph, const ir::Cluster& cluster, double step_seconds, int64_t updates = 1,
               bool takes_replicas = true);

}  // namespace graphpipe::cost
