#pragma once
// `graphpipe plan --profile FILE --profile-format pipedream|piper|dnn-partitioning`: plans for profiles of other
// projects, in the terms of the planner asked for and in the common simulator.

#include <optional>

#include "driver/cli/options.h"
#include "ir/assignment.h"
#include "partitioner/layers/layer_planners.h"

namespace graphpipe::driver {

/// Returns the process exit code. Needs: options.foreign.format is not "graphpipe".
int run_plan_profile(const Options& options);

/// The profile in the format that the options name. Errors: those of the readers.
Result<ir::LayerGraph> read_foreign_profile(const Options& options);

/// What the flags, and where they are silent the file, ask of a planner of layer graphs. `graph` outlives the request.
/// Errors: kUsage naming the flag.
Result<partitioner::LayerPlanRequest> layer_request(const Options& options, const ir::LayerGraph& graph);

/// "4@10e9,4@1.25e9", innermost first. Errors: kUsage.
Result<std::vector<cost::LayerMachine::Level>> parse_topology(const std::string& text);

/// A plan of a profile with what it leads to.
struct ProfilePlan {
  std::string planner;
  double objective = 0, bound = 0, gap = 0;
  std::string unit;
  /// With as many micro-batches in flight as the memory of the devices allows; where it allows too few to run at all,
  /// that of devices without a limit, and the plan fits only if it does as the profile's project counts memory.
  double simulated_step = 0;
  bool fits = true;
  double search_seconds = 0;
  bool complete = true;
  std::string stopped;
  int64_t states = 0, pairs = 0;
  struct Stage {
    std::vector<ir::LayerId> layers;
    std::vector<int> devices;
    int replicas = 1, degree = 1;
    std::vector<int> variants;
    bool on_cpu = false, recompute = false;
    /// In units of the profiled work.
    int64_t micro_batch = 1;
  };
  std::vector<Stage> stages;
  /// The stages as they were simulated, of the layers as cost::convert_layers joins them.
  std::optional<ir::Assignment> assignment;
  /// What limits the plan and what would lift it, one sentence (cost::limit_of); empty where no stages were simulated.
  std::string limit;
};

/// Runs any planner of either list on the request. Errors: those of the planner; kUsage for an unknown name.
Result<ProfilePlan> plan_profile(const std::string& planner, const Options& options,
                                 const partitioner::LayerPlanRequest& request);

/// The same for a planner of plan graphs; its `auto` looks at plans of its own only.
Result<ProfilePlan> plan_profile_by_graph(const std::string& planner, const Options& options,
                                          const partitioner::LayerPlanRequest& request);

/// The devices that take any layer at its plain price: without CPUs.
ir::Cluster accelerators_of(const partitioner::LayerPlanRequest& request);

/// A plan file says stages, their devices and their order, at the plain price of every layer. Errors (kUsage): a stage
/// that says more.
Status refuse_unwritable(const Options& options, const ProfilePlan& plan);

/// How far a value is above its bound, relatively; infinity where the bound is zero and the value is not.
double gap_over(double value, double bound);

}  // namespace graphpipe::driver
