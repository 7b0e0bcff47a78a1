#pragma once
// From a stage graph to the schedule that is run: a policy's compute order, lowered, checked and simulated.

#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/memory/memory.h"
#include "scheduler/policies/policies.h"
#include "scheduler/simulate/durations.h"
#include "scheduler/simulate/simulate.h"
#include "scheduler/validate/check_schedule.h"

namespace graphpipe::scheduler {

struct BuildOptions {
  std::string policy = "kfkb";
  OrderChoices choices = {};
  /// Empty: by the rule of cost/in_flight.h.
  IdMap<StageId, Samples> in_flight;
  /// Improves what the policy gives (policies/schedule_local_search.h).
  bool search = false;
  /// Actions that the search of orders may simulate, this one or that of policy auto.
  int64_t searched_actions = kSearchedActions;
  /// As in PolicyRequest.
  std::function<bool()> is_over = {};
  LoweringOptions lowering;
  MemoryOptions memory;
  SimulateOptions simulation;
};

struct BuiltSchedule {
  Schedule schedule;
  Timeline timeline;
  std::vector<DeviceMemory> memory;  // per program
  /// Steps that the schedule is of (StageGraph::batches).
  int64_t batches = 1;

  double seconds() const { return static_cast<double>(timeline.makespan.count) / kTicksPerSecond; }
  double step_seconds() const { return seconds() / static_cast<double>(batches); }
};

/// Whether a device holds more than this part of its memory at once.
bool peak_reaches(const BuiltSchedule& built, const ir::Cluster& cluster, double part);

/// Errors: kUsage for an unknown policy (names the known ones); kBadPlan and kBadSchedule from the steps;
/// kNoFeasiblePlan where a device's memory is too small.
Result<BuiltSchedule> build_schedule(const StageGraph& graph, const ir::Cluster& cluster, const BuildOptions& options);

/// The same for an order of compute actions that the caller has (insert_transfers.h). Errors: all but kUsage.
Result<BuiltSchedule> lower_order(const StageGraph& graph, const ir::Cluster& cluster, Schedule compute,
                                  const BuildOptions& options, const VersionClaims& claims);

/// Batches between two drains of an asynchronous schedule, at most, where nobody says how many.
inline constexpr int64_t kUsualDrainEvery = 16;
/// Micro-batches in a schedule after which what filling and draining costs is small: the usual number of batches has
/// about as many.
inline constexpr int64_t kMicroBatchesPerDrain = 512;

/// Stages of several batches, and their schedule, which drains once.
struct OrderedBatches {
  StageGraph stages;
  BuiltSchedule built;
};
/// The schedule of a policy from one drain to the next: of one batch, and where the policy is asynchronous of
/// `drain_every`. Where that is 0 it is of as many as are usual; where these have no schedule, and nobody has said how
/// many samples an update takes, of half as many, and so on, or of as many with fewer samples in flight, if that is
/// faster. Errors: those of build_schedule and of with_batches; kBadPlan if the schedule would be too long.
Result<OrderedBatches> order_batches(const StageGraph& stages, const ir::Cluster& cluster, const BuildOptions& options,
                                     int64_t drain_every);

/// A schedule whose peak reaches this share of a device's memory may have less in flight because of the limit. Memory
/// bounds have mostly been found too high by no more than the slack.
inline constexpr double kMemoryLimitedShare = 0.5, kMemoryBoundSlack = 1.25;

/// The same; where memory may limit what is in flight, by the bounds that orders are made by, also an order without
/// that limit, or, if that does not fit the devices, with a little more memory: the faster one of those that fit by
/// `options.memory`, whose items may be counted exactly.
/// Example: devices have 10 GiB; a micro-batch in flight is bounded by 3 GiB and takes 2.4. By the bound three are in
/// flight. Without a limit five would be, 12 GiB, too much; within 1.25 * 10 GiB four are, 9.6 GiB, which fits.
Result<OrderedBatches> order_within_memory(const StageGraph& stages, const ir::Cluster& cluster,
                                           const BuildOptions& options, int64_t drain_every);

}  // namespace graphpipe::scheduler
