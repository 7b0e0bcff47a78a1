#pragma once
// A plan file where a plan is asked for (--plan FILE): what it decides, and what it says where no flag does.

#include <optional>
#include <string_view>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// kBadPlan and kBadProfile: the digest of the model or of the profile is not the one in the plan.
Diagnostic other_model(const ir::Plan& plan);
Diagnostic other_profile(const std::string& path);

/// Errors: kBadPlan for a policy or a planner that there is not.
Status check_names(const ir::Plan& plan, const std::string& path);
/// The problems, of which those of no other place name the file.
Diagnostics of_file(Diagnostics problems, const std::string& path);

/// Flags that the user did not give stand for fields of the plan file (GivenPlan::completed): their problems are the
/// file's, kBadPlan in place of kUsage.
Diagnostics blaming_file(Diagnostics problems, const Options& asked);

/// By which a plan remembers the numbers of its machines: Plan::cluster_digest.
std::string machines_digest(const ir::Cluster& cluster);
/// A note where a user has edited the machines of the plan file, which may be: its times are simulated anew.
std::optional<Diagnostic> edited_machines(const ir::Plan& plan);

/// Labels are for people, so a plan whose labels say other than its numbers would not be what its author reads:
/// kBadPlan.
Status check_labels(const ir::Plan& plan, const ir::PlanGraph& graph);

/// Whether the schedule is of the policy, and runs the samples, the micro-batches, the k and the recomputation that the
/// plan says, which a user may have edited without it. Needs: a schedule whose stages there are. Errors: kBadPlan.
Status check_edits(const ir::Plan& plan);

/// The same cut executed as "graph" or "chain", in place of what the plan says: then it is ordered anew, by its own
/// policy where no flag names another. "" changes nothing. Returns whether it changed something.
bool execute_as(ir::Plan& plan, std::string_view execution);

class GivenPlan {
 public:
  /// The file of --plan; none without the flag. Flags of the order, such as a --policy other than the file's, leave out
  /// its schedule: they order its stages anew. Errors: those of reading it; kBadPlan for a policy or a planner that
  /// there is not.
  static Result<GivenPlan> read(const Options& options);

  explicit operator bool() const { return plan_.has_value(); }
  /// The options with what the file says of batch, policy, seed, threads, batches between drains, profile and how the
  /// model is read and trained (take_model_flags), where no flag does.
  Options completed(Options options) const;
  /// Its machines, which no flag names; null where one does, or the file has none.
  const ir::Cluster* machines(const Options& options) const;
  /// Puts the assignment, and the schedule where the file has one, into the priced pipeline as they are. Errors: kUsage
  /// for another batch than the schedule's; kBadPlan where it is of another model, or of other
  /// options that number the nodes differently.
  Status use(Pipeline& pipeline, const Options& options) const;
  /// The status, its problems by of_file().
  Status named(Status status) const;

 private:
  std::string path_;
  std::optional<ir::Plan> plan_;
};

}  // namespace graphpipe::driver
