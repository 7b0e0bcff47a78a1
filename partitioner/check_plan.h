#pragma once
// An independent check of a plan: everything is derived again from node lists, sharing no code with the planners and
// none with build_stage_graph.

#include "ir/assignment.h"
#include "partitioner/planner.h"
#include "support/result.h"

namespace graphpipe::partitioner {

struct CheckOptions {
  /// GraphPipe's C3: no device holds two stages; one that works on the whole batch, and runs once per step, may share.
  bool one_stage_per_device = true;
  bool limit_memory = true;
  /// No stage may depend on itself.
  bool ordered = true;
  /// Exactly this many stages; 0: any number.
  int stages = 0;
  /// What the planner claims as objective (seconds per sample); NaN: not checked.
  double objective = 0;
  /// What the request asks of stages with a backward.
  Recompute recompute = Recompute::kAuto;
};

/// Problems found, each once; empty for a sound plan. Checked: every node in one stage, stages not empty; convex parts
/// and no cycle between stages; colocation; micro-batch, k, degree, devices and replicas in range; alternatives
/// that exist and have the degree of their stage, devices of kinds that run their nodes; nodes that work
/// on samples together get those of their scope, on one replica; mixed values only between equal micro-batches; memory
/// with the fewest samples in flight that do not deadlock; the objective to 1e-9; recomputation, where it is asked for.
Diagnostics check_plan(const ir::PlanGraph& graph, const ir::Cluster& cluster, const ir::Assignment& assignment,
                       const CheckOptions& options);

}  // namespace graphpipe::partitioner
