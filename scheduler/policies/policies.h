#pragma once
// The policies: rules that give the order of compute actions on every device, and nothing else. Transfers, slots,
// reductions and steps are added by one lowering (insert_transfers.h), so a new policy is one function and one line
// of the list in policies.cpp.

#include <functional>
#include <span>
#include <string_view>

#include "ir/cluster.h"
#include "ir/plan_graph.h"
#include "ir/stage_shape.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/policies/compute_order.h"

namespace graphpipe::scheduler {

using ir::StageShape;

enum class BackwardOrder : uint8_t { kFifo, kLifo };

/// Actions that a search of orders simulates at most, where nobody says less.
inline constexpr int64_t kSearchedActions = 4'000'000;

/// What a user may choose of an order; each policy takes some of it (PolicyChoices).
struct OrderChoices {
  /// gpipe: the order of the backwards.
  BackwardOrder backward_order = BackwardOrder::kFifo;
  /// interleaved, interleaved-zb: micro-batches per group; 0: the fewest that are at least the number of devices and
  /// make equal groups.
  int64_t group = 0;
  /// pipedream, pipedream-rr: all stages run a micro-batch with weights of one age, that of the stage with the most in
  /// flight, instead of the newest that each stage has.
  bool vertical_sync = false;
  /// 2bw: samples per update; 0: the fewest that need no third version.
  Samples update{0};
};

struct PolicyRequest {
  const StageGraph& graph;
  const ir::Cluster& cluster;
  /// Per stage the samples in flight over all its replicas: forwards that run before the first backward. Empty: by the
  /// rule of cost/in_flight.h.
  IdMap<StageId, Samples> in_flight = {};
  OrderChoices choices = {};
  /// auto: what its search of orders may simulate (schedule_local_search.h).
  int64_t searched_actions = kSearchedActions;
  /// auto: how the orders that it compares are lowered.
  LoweringOptions lowering = {};
  /// Whether the time for a better order than the policy's rule gives is over. Empty: it never is.
  std::function<bool()> is_over = {};
};

/// A kBadPlan error of a policy: what it found, and what to do.
Diagnostic refused(std::string_view policy, std::string_view what, std::string hint);

/// Whether all stages have one micro-batch size. Errors (kBadPlan): they differ because a stage works on the whole
/// batch and another does not, or (`other_sizes`) for any reason.
enum class OtherSizes : uint8_t { kTaken, kRefused };
Status expect_one_micro_batch(const StageGraph& graph, std::string_view policy, OtherSizes other_sizes);

/// Returns a schedule that holds compute actions only (F, B, I, W), one program per used device, ascending.
/// Asynchronous policies add the actions of their updates (updates.h). Errors: kBadPlan where the policy cannot order
/// this stage graph.
using PolicyFunction = Result<Schedule> (*)(const PolicyRequest& request);

/// The OrderChoices that a policy takes, and more; of the others it knows nothing, and its caller should refuse them.
struct PolicyChoices {
  bool backward_order = false, group = false, vertical_sync = false, update = false;
  /// Schedules of several batches that follow each other without draining (StageGraph::batches).
  bool drain_every = false;
};

/// The policy of a schedule whose order a user gave; no entry has this name.
inline constexpr std::string_view kGivenOrder = "manual";

struct Policy {
  std::string_view name;
  std::string_view description;
  PolicyFunction order;
  StageShape shape = StageShape::kAny;
  /// Weights change inside the step. Only stages with trainable weights have versions, in standalone schedules too.
  bool asynchronous = false;
  /// Without vertical sync. Updates are delayed where these are two.
  ir::WeightVersions versions = ir::WeightVersions::kOne;
  /// Forwards only: takes the stage graph as without_backward leaves it.
  bool forward_only = false;
  /// Takes the best order of the other policies.
  bool tries_others = false;
  /// Replicas take whole micro-batches in turn instead of dividing each.
  bool takes_turns = false;
  PolicyChoices choices = {};
  /// Passes start as late as they may without making the step longer, which holds less at once (zb-2p).
  bool delays_starts = false;
};

/// The graph of the forwards alone: no stage has a backward, no edge a gradient, no weight is trained.
StageGraph without_backward(StageGraph graph);

/// The versions of weights that the policy's schedules keep.
ir::WeightVersions versions_of(const Policy& policy, bool vertical_sync);
/// The graph as planners see it whose plans the policy orders; that of an unknown policy as it is. Where replicas take
/// turns, none has a part of what a node works on together.
ir::PlanGraph with_versions_of(std::string_view policy, bool vertical_sync, ir::PlanGraph graph);

std::span<const Policy> all_policies();
/// Null where no policy has the name.
const Policy* find_policy(std::string_view name);

// The functions behind the list.
Result<Schedule> order_kfkb(const PolicyRequest& request);
Result<Schedule> order_1f1b(const PolicyRequest& request);
Result<Schedule> order_dapple_a(const PolicyRequest& request);
Result<Schedule> order_dapple_b(const PolicyRequest& request);
Result<Schedule> order_none(const PolicyRequest& request);
Result<Schedule> order_gpipe(const PolicyRequest& request);
Result<Schedule> order_zb_1p(const PolicyRequest& request);
Result<Schedule> order_zb_2p(const PolicyRequest& request);
Result<Schedule> order_interleaved(const PolicyRequest& request);
Result<Schedule> order_interleaved_zb(const PolicyRequest& request);
Result<Schedule> order_looped_bfs(const PolicyRequest& request);
Result<Schedule> order_zb_v(const PolicyRequest& request);
Result<Schedule> order_v_1f1b(const PolicyRequest& request);
Result<Schedule> order_v_half(const PolicyRequest& request);
Result<Schedule> order_v_min(const PolicyRequest& request);
Result<Schedule> order_dualpipe(const PolicyRequest& request);
Result<Schedule> order_dualpipev(const PolicyRequest& request);
Result<Schedule> order_chimera(const PolicyRequest& request);
Result<Schedule> order_pipedream(const PolicyRequest& request);
Result<Schedule> order_pipedream_rr(const PolicyRequest& request);
Result<Schedule> order_2bw(const PolicyRequest& request);
Result<Schedule> order_data_parallel(const PolicyRequest& request);
Result<Schedule> order_parameter_server(const PolicyRequest& request);
Result<Schedule> order_inference(const PolicyRequest& request);
Result<Schedule> order_auto(const PolicyRequest& request);

}  // namespace graphpipe::scheduler
