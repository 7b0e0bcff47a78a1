#pragma once
// What `plan` asks of the planners where a schedule policy is given, or is to be found too.

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/stage_shape.h"
#include "partitioner/planner.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

/// What a schedule policy asks of plans. The partitioner knows no policies: their caller says this of them.
struct PolicyNeeds {
  /// The only stage graph that the policy is defined on; kAny also where the policy is to be found.
  ir::StageShape shape = ir::StageShape::kAny;
  /// Replicas take whole micro-batches in turn instead of dividing each.
  bool takes_turns = false;
  /// Batches follow each other without draining (PlanRequest::without_flush).
  bool without_flush = false;
  /// Where the policy is to be found: the shapes that single policies need, which are tried too, and the seconds of a
  /// step whose order is searched to the end, asked of the best few. Else empty.
  std::vector<ir::StageShape> shapes = {};
  std::function<double(const ir::Assignment&)> evaluate_to_end = {};
};

struct PlansForPolicy {
  /// Replicas take turns where the policy lets them.
  PlanAnswer answer;
  /// Where `auto` chose one stage with replicas: the best plan of several stages (best_multi_stage).
  std::optional<ir::Assignment> multi_stage = {};
};

/// The plans of a planner for a policy, the best step first. Errors: those of the planner.
Result<PlansForPolicy> plan_for_policy(std::string_view planner, const PlanRequest& request, const PolicyNeeds& needs);

}  // namespace graphpipe::partitioner
