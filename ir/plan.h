#pragma once
// A plan as the user saves it: what was decided, for which model, under which options. Read and written by
// files/plan.h. Whoever uses one rebuilds the graph from the model with these options, then checks the assignment.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/assignment.h"
#include "ir/model_spec.h"
#include "ir/schedule.h"
#include "support/text.h"

namespace graphpipe::ir {

/// Of Plan::drain_every: the schedule holds all of these batches.
constexpr int64_t kMaxDrainEvery = 4096;

struct Plan {
  ModelSpec spec;
  /// The measured profile that it was priced with, named like the model; empty for analytic costs.
  ModelText profile;
  /// SHA-256 as 64 lower-case hex digits of what the plan was made from: the model, the cluster as it stands below, and
  /// the file of the profile. Empty where there was none, or nothing is known of it.
  std::string model_digest, cluster_digest, profile_digest;
  /// Samples of one step.
  Samples batch{1};
  /// Asynchronous schedules: the batches that follow each other before the pipeline drains; the schedule is of all of
  /// them.
  int64_t drain_every = 1;
  Execution execution = Execution::kGraph;
  uint64_t seed = 0;
  /// CPU threads of each stage: other counts give other bits.
  int threads = 1;
  std::string planner, policy;
  /// The machines that it was made for.
  Cluster cluster;
  /// The decision. Needs: every stage has at least one node.
  Assignment assignment;
  /// For people: what each node is called. Either empty or one per node.
  IdMap<PlanNodeId, ModelText> labels;
  /// Absent: the policy makes it.
  std::optional<Schedule> schedule;
  bool operator==(const Plan&) const = default;
};

}  // namespace graphpipe::ir
