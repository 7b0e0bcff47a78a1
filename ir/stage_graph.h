#pragma once
// PlanGraph + Assignment -> StageGraph: the stages, what crosses between them, and the weights they share.
// Cannot be built from stages that are not convex or that depend on each other in a cycle.

#include <vector>

#include "ir/assignment.h"
#include "support/result.h"
#include "wire/action.h"

namespace graphpipe::ir {

using EdgeId = Id<struct EdgeTag>;
using wire::SampleRange;

/// Its seconds are those of one replica for n of its samples, summed over the nodes, on the stage's slowest device.
struct Stage : PassSeconds {
  /// Ascending. Empty in a standalone schedule.
  std::vector<PlanNodeId> nodes;
  StageChoice choice;
  /// Stash of one item of n samples: all that is held from F until I, and all that is held from I until W. Values that
  /// several nodes save, and received inputs that are saved, count once.
  SampleFunction stash_to_input_gradient, stash_to_weight_gradient;
  /// The gradients of one item in stash_to_weight_gradient: in a whole backward they exist beside the stash.
  SampleFunction kept_gradients;
  SampleFunction workspace;
  Bytes weight_bytes;            // all weights and buffers, one replica
  Bytes trainable_weight_bytes;  // the part with gradients and optimizer state
  /// What the update of a step passes over: all of that, but of tables that no other copy adds to the rows that were
  /// looked up.
  Bytes updated_weight_bytes;
  /// Bytes of memory traffic of that update, and its floating-point operations (WeightGroup).
  double update_traffic = 0, update_flops = 0;
  /// The most that the update of one weight takes for itself.
  Bytes update_scratch;
  std::vector<WeightGroupId> weights;
  int trainable_tensors = 0;
  bool has_backward = true;
  /// The widest scope of its nodes, and the most samples that one of them needs together.
  SampleScope scope = SampleScope::kEach;
  int64_t fewest_samples = 1;
  /// Whether all its nodes may have replicas (PlanNode::sums_over_replicas), and whether it has replicas that exchange
  /// sums: these run each of its items together.
  bool may_have_replicas = true, exchanges_sums = false;
  /// Whether a step changes some of its weights.
  bool is_trained() const { return has_backward && trainable_weight_bytes > Bytes(0); }
  bool operator==(const Stage&) const = default;
};

/// A tensor that crosses from one stage to one other. A value with readers in three other stages makes three edges; in
/// a chain one from each stage to the next, from its producer to its last reader.
struct StageEdge {
  StageId from, to;
  PlanValueId value;
  SampleFunction bytes;           // of n samples, forward
  SampleFunction gradient_bytes;  // of n samples, backward, all tensors; zero where no gradient flows
  /// Gradient tensors that come back over it. Sums over readers are made in the producer's stage, except those whose
  /// operands all come from this reader's stage, so the order of the additions never depends on the cut.
  int gradient_count = 0;
  BatchKind batch = BatchKind::kAxis;
  /// Whether the stash of the stage at that end counts the value: it is kept there for the backward anyway.
  bool stashed_above = false, stashed_below = false;
  /// In a chain: the stage at the upper end has the value from an edge of its own and only passes it on, and so many
  /// of the gradients come to the stage at the lower end from further below.
  bool passed_on = false;
  int passed_gradients = 0;
  bool carries_gradient() const { return !gradient_bytes.is_zero(); }
  bool operator==(const StageEdge&) const = default;
};

/// A weight group whose uses fall into several stages: each holds a copy, gradients are summed in ascending order.
struct SharedWeights {
  WeightGroupId group;
  std::vector<StageId> stages;
  /// What the copies exchange in a step: the group's bytes, zero where it is frozen.
  Bytes gradient_bytes;
  bool operator==(const SharedWeights&) const = default;
};

struct StageGraph {
  /// Numbered in topological order: every edge goes from a lower to a higher id.
  IdMap<StageId, Stage> stages;
  /// Sorted by (from, to, value).
  IdMap<EdgeId, StageEdge> edges;
  std::vector<SharedWeights> shared;
  /// Samples of the schedule: of one step, of `batches` steps where an asynchronous schedule drains only behind them
  /// (docs/schedules.md, section 3).
  Samples batch{1};
  int64_t batches = 1;
  Execution execution = Execution::kGraph;
  /// By which memory is planned; a schedule says itself what it holds.
  WeightVersions versions = WeightVersions::kOne;
  /// Every micro-batch is one sample (PlanGraph::one_sample).
  bool one_sample = false;
  /// As in the PlanGraph: bytes of optimizer state per byte of trainable weight.
  double optimizer_state_per_weight_byte = 0;

  IdRange<StageId> stage_ids() const { return ids<StageId>(stages.size()); }
  IdRange<EdgeId> edge_ids() const { return ids<EdgeId>(edges.size()); }
  /// Distinct neighbour stages, ascending.
  std::vector<StageId> predecessors(StageId stage) const;
  std::vector<StageId> successors(StageId stage) const;
  bool operator==(const StageGraph&) const = default;
};

/// Derives stages and edges. Stage ids are renumbered in topological order (ties: lowest node id first), and
/// `assignment` is renumbered with them, so that ids agree afterwards. Where the graph is executed as a chain, the
/// stages stand in this order, and one that only passes gradients on has a backward too. Two neighbours that no tensor
/// joins, not even one of others, do not wait for each other. Errors (kBadPlan): a node without a stage; an empty
/// stage; a stage without devices, with a device twice or with a micro-batch outside [1, batch]; a cycle between stages
/// (convexity follows); colocated nodes apart; replicas of a stage whose nodes work on samples together, but those that
/// exchange sums, split the micro-batches and have a sample of each; a micro-batch that is not what the scope of these
/// nodes asks for, or one (the last of the step included) of fewer samples than they need; an edge with a mixed value
/// between unequal micro-batches or to or from replicas.
Result<StageGraph> build_stage_graph(const PlanGraph& graph, Assignment& assignment);

/// Number of micro-batches of a stage in the schedule: ceil(batch / micro_batch).
int64_t micro_batch_count(const StageGraph& graph, StageId stage);
/// The same stages with a schedule that goes on over so many batches before it drains. Errors (kBadPlan): a stage whose
/// replicas take in turn what does not divide the batch, so that a micro-batch would lie in two steps.
Result<StageGraph> with_batches(StageGraph graph, int64_t batches);
/// The largest number of micro-batches of a stage.
int64_t max_micro_batches(const StageGraph& graph);
/// The samples that replica `replica` of the stage processes in micro-batch `index`; may be empty.
SampleRange item_range(const StageGraph& graph, StageId stage, int64_t index, int replica);

}  // namespace graphpipe::ir
