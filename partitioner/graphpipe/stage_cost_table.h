#pragma once
// What a set of nodes costs as one stage, for every replica count: an incremental evaluator for the inner loop of the
// planners. It says what cost/stage_cost.h and cost/memory.h say of the finished plan, under two assumptions that hold
// on clusters of one level: transfers use the link of one given level, an all-reduce the innermost that holds the
// replicas.

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "cost/in_flight.h"
#include "cost/update_time.h"
#include "ir/cluster.h"
#include "ir/plan_graph.h"
#include "partitioner/planner.h"
#include "support/integer_math.h"

namespace graphpipe::partitioner {

struct StageOption {
  int devices = 1;
  /// GraphPipe's objective of the stage.
  double time_per_sample = 0;
  /// The same where what it sends on leaves its group: over the link of the next level out, which the replicas share,
  /// with one for each way.
  double time_across = 0;
  cost::InFlightStage in_flight;
  /// Bytes on one replica (cost::stage_memory): beside the stash, and of the stash per item in flight. What neighbours
  /// send ahead follows from stages that are not chosen yet; the finished plan is checked with it.
  double fixed_bytes = 0, item_bytes = 0;
  /// It holds at least so many samples, whatever lies below: the whole batch above a node that works on it.
  int64_t fewest_in_flight = 1;
  /// Keeps only what crosses the boundary and runs the forward again.
  bool recompute = false;
  /// Seconds that one item takes through the stage and on, forward and back: its part in filling and draining.
  double latency = 0;

  double memory(int64_t samples_in_flight) const {
    const int64_t samples = std::max(samples_in_flight, fewest_in_flight);
    const int64_t items = ceil_div(samples, in_flight.micro_batch);
    return fixed_bytes + static_cast<double>(items) * item_bytes;
  }
};

struct EvaluatorOptions {
  /// The forms in which each replica count of a stage with a backward comes: kept activations, recomputed ones, or
  /// first the one and then the other.
  bool keep = true, recompute = false;
  /// Replicas divide the state among them.
  bool shard_optimizer_state = false;
  /// Times per sample have a share of the update.
  bool counts_updates = false;
  /// The level of links that messages between stages are priced at; the outermost where there are fewer.
  size_t level = std::numeric_limits<size_t>::max();
};

/// Those of a request; `may_recompute` says whether a planner recomputes where the request leaves it to it.
EvaluatorOptions evaluator_options(const PlanRequest& request, bool may_recompute, bool counts_updates = false,
                                   size_t level = std::numeric_limits<size_t>::max());

class StageEvaluator {
 public:
  /// Replica counts 1 to `max_devices`, never more than the micro-batch has samples; of those with equal largest shares
  /// only the smallest, and where more than 32 are left those in steps of a quarter. A stage with a node that works on
  /// the whole batch has the batch as its micro-batch, whatever `micro_batch` is; one with a node that may not have
  /// replicas has one.
  StageEvaluator(const ir::PlanGraph& graph, const ir::Cluster& cluster, Samples micro_batch, int k, int max_devices,
                 const EvaluatorOptions& options = {});

  void clear();
  /// Needs: none of the nodes is in the stage yet.
  void add(std::span<const ir::PlanNodeId> nodes);
  /// No stage that holds these nodes has a smaller time per sample.
  double min_time_per_sample() const;
  /// No stage spends fewer device seconds per sample on this node.
  double min_work_per_sample(ir::PlanNodeId node) const;
  /// How many replica counts come into question for the stage so far, and what the stage costs with one of them.
  size_t counts() const;
  /// Whether the stage so far recomputes, for each form that it comes in.
  std::span<const bool> forms() const;
  StageOption option_at(size_t index, bool recompute) const;
  /// No option with this replica count has a smaller time per sample.
  double compute_per_sample(size_t index) const;
  /// Appends the options with a time per sample of at most `limit`; one with more devices that is not faster than one
  /// with fewer is kept only where it needs less memory. Returns whether none took longer.
  bool options(double limit, std::vector<StageOption>& out) const;

 private:
  /// Whether a value crosses the stage's boundary, and its gradient.
  struct Boundary {
    bool in = false, out = false, gradient = false;
    bool operator==(const Boundary&) const = default;
  };
  /// How many of a stage's nodes, or how often one of them, does what with a value.
  struct Uses {
    bool producer = false;
    int readers = 0, gradient_readers = 0, savers = 0;
    void add(const Uses& other);
  };
  struct ValueState {
    Uses uses;
    Boundary boundary;
    bool held = false;
  };
  void add_node(ir::PlanNodeId node);
  void add_trained(const ir::WeightGroup& weights);
  double update_seconds(int replicas) const;
  void add_uses(ir::PlanValueId value, const Uses& uses);
  Boundary boundary(ir::PlanValueId value, const Uses& uses) const;
  void add_boundary(ir::PlanValueId value, const Boundary& boundary, double sign);

  const ir::PlanGraph& graph_;
  const ir::Cluster& cluster_;
  Samples micro_batch_;
  int k_;
  EvaluatorOptions options_;
  std::vector<ir::DeviceId> kinds_of_update_;  // one device of each pair of rates
  /// Numbers by node or value, and by column.
  struct Table {
    size_t stride = 1;
    std::vector<double> numbers;
    const double* row(size_t i) const { return numbers.data() + i * stride; }
  };
  /// Adds a row: rows come in ascending order.
  template <typename Price>
  void fill(Table& to, size_t row, Price price) const;
  void add_batch_columns(int max_devices);
  void price_counts();
  void price_nodes();
  void price_values();
  const ir::LinkLevel& boundary_link() const {
    return cluster_.levels[std::min(options_.level, cluster_.levels.size() - 1)];
  }
  bool has_level_around() const { return options_.level + 1 < cluster_.levels.size(); }

  /// The column of the tables for the stage so far and this replica count, and the samples of its micro-batch.
  size_t column(size_t index) const { return scope_ == ir::SampleScope::kBatch ? batch_column_ + index : index; }
  Samples micro_batch() const { return scope_ == ir::SampleScope::kBatch ? graph_.batch : micro_batch_; }
  double per_sample(size_t column, Samples micro_batch) const {
    return seconds_[column] / static_cast<double>(micro_batch.count);
  }

  std::vector<int> replicas_;  // of each column: the counts, ascending, then those for the whole batch
  size_t counts_ = 0, columns_ = 0;
  size_t batch_column_ = 0, batch_counts_ = 0;  // the first column for the whole batch, and how many there are
  /// Nodes above one that works on the whole batch.
  IdMap<ir::PlanNodeId, bool> feeds_batch_;
  // By column: the samples of an item, and an all-reduce.
  std::vector<double> items_;
  std::vector<ir::SumTime> reductions_;
  Table node_seconds_, node_forward_, node_stash_, node_workspace_, node_kept_;
  Table value_bytes_, value_gradient_bytes_, value_seconds_, value_gradient_seconds_;
  /// The use that has to be set for a node and a value; those of all nodes.
  Uses& use_of(ir::PlanNodeId node, ir::PlanValueId value);
  IdMap<ir::PlanNodeId, std::vector<std::pair<ir::PlanValueId, Uses>>> uses_;
  /// Of each value in the whole graph.
  IdMap<ir::PlanValueId, Uses> all_uses_;

  // The stage so far.
  std::vector<double> seconds_, forward_, stash_, boundary_, messages_, sent_, hops_, gradient_bytes_, workspace_,
      kept_;
  double weight_bytes_ = 0, trainable_bytes_ = 0;
  cost::UpdateWork update_alone_, update_of_replica_;
  ir::SampleScope scope_ = ir::SampleScope::kEach;
  bool may_have_replicas_ = true;
  int64_t fewest_samples_ = 1;
  bool has_backward_ = false, above_batch_ = false;
  IdMap<ir::PlanValueId, ValueState> values_;
  std::vector<ir::PlanValueId> touched_values_;
  std::vector<int> group_uses_;
  std::vector<ir::WeightGroupId> touched_groups_;
};

}  // namespace graphpipe::partitioner
