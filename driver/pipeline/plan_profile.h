#pragma once
// `graphpipe plan --profile FILE --profile-format pipedream|piper|dnn-partitioning`: plans for profiles of other
// projects, in the terms of the planner asked for and by the common yardstick.

#include <memory>
#include <optional>

#include "cost/fold.h"
#include "driver/cli/options.h"
#include "ir/imported_profile.h"
#include "partitioner/planner.h"
#include "scheduler/analysis/steady_state.h"

namespace graphpipe::driver {

/// Returns the process exit code. Needs: options.foreign.is_foreign().
int run_plan_profile(const Options& options);

/// The options with what the file of --plan, where there is one, says of the profile, of the order, of how it is
/// executed, of the micro-batches of a step and of the machine, where no flag does. Errors: those of reading it;
/// kBadPlan for one of a model, and for a machine that no flags say; kBadProfile where the profile that it names has
/// changed.
Result<Options> completed_by_plan(Options options);

/// A profile on a machine, as the flags, and where they are silent the file, describe both.
class ProfileProblem {
 public:
  /// Errors: those of the readers; kUsage naming the flag.
  static Result<std::unique_ptr<ProfileProblem>> read(const Options& options);
  // The request points into it.
  ProfileProblem(const ProfileProblem&) = delete;
  ProfileProblem& operator=(const ProfileProblem&) = delete;

  const ir::ImportedProfile& profile() const { return profile_; }
  const partitioner::PlanRequest& request() const { return request_; }
  int64_t micro_batches() const { return profile_.graph.batch.count; }
  /// Accelerators.
  int devices() const { return devices_; }

  /// Runs a planner; the best plan is the first candidate. Errors: those of the planner.
  Result<partitioner::PlanAnswer> plan(const std::string& planner) const;
  /// What limits a plan and what would lift it, one sentence (cost::limit_of); empty where it has no stage graph with
  /// its stages in their order.
  std::string limit_of(const partitioner::PlanCandidate& plan) const;
  /// The schedule of a plan, of the policy asked for, at the prices of what the plan chooses.
  struct Scheduled {
    ir::StageGraph stages;
    ir::Cluster cluster;
    scheduler::BuildOptions options;
    scheduler::BuiltSchedule built;
  };
  /// Errors: why there is none.
  Result<Scheduled> scheduled(const partitioner::PlanCandidate& plan) const;
  /// Why the policy has no schedule for a plan that it gives no step; Ok where it has one.
  Status schedule_problems(const partitioner::PlanCandidate& plan) const;
  /// Of asynchronous policies: what batches take that follow each other without draining.
  std::optional<scheduler::SteadyState> steady_of(const partitioner::PlanCandidate& plan) const;
  bool is_on_cpu(const ir::StageChoice& choice) const {
    return choice.devices.front().index() >= static_cast<size_t>(devices_);
  }

 private:
  explicit ProfileProblem(const Options& options) : options_(options) {}
  Status take_machine();
  /// The links of --topology, or of devices that exchange the same with each other; sets devices_.
  Result<std::vector<ir::LinkLevel>> take_levels(const std::vector<int>& machines);
  Result<int> take_cpus() const;
  Status take_units();
  Status take_request();

  /// The folded graph and the plan of it, at the prices of what the plan chooses.
  struct Priced {
    ir::PlanGraph graph;
    ir::Assignment assignment;
  };
  Result<Priced> priced(const ir::Assignment& assignment) const;
  double step_in_search(const ir::Assignment& assignment) const;
  partitioner::PlanMeasure measure(const partitioner::PlanCandidate& plan) const;
  /// Whether the plan keeps to the memory with some number of micro-batches in flight, in the policy's order.
  bool may_fit(const Priced& plan) const;
  /// The machine; without a limit of memory for a plan that does not fit.
  ir::Cluster cluster_for(bool fits) const;

  const Options& options_;
  ir::ImportedProfile profile_;
  ir::Cluster cluster_;
  cost::FoldedGraph folded_;
  int devices_ = 1;
  partitioner::PlanRequest request_;
};

/// "4@10e9,4@1.25e9", innermost first. Errors: kUsage.
Result<std::vector<ir::LinkLevel>> parse_topology(const std::string& text);

}  // namespace graphpipe::driver
