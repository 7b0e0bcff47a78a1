#pragma once
// The planners: an explicit list, in the order in which `auto` asks them. A planner turns a priced graph and a cluster
// into candidate assignments; several are returned where none is best in every respect, and the caller's `evaluate`
// ranks them.

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/assignment.h"
#include "ir/imported_profile.h"
#include "support/result.h"
#include "support/units.h"

namespace graphpipe::partitioner {

/// `--replicas STAGE=D`: the stage with this topological number has D replicas, and all stages without such a request
/// have one.
struct ForcedReplicas {
  int stage = 0;
  int replicas = 1;
};

/// Which stages with a backward recompute (StageChoice::recompute).
enum class Recompute : uint8_t {
  kAuto,  // those that the planner chooses, where memory asks for it; planners that know no recomputation choose none
  kAlways,
  kNever,
};
/// "auto", "always", "never".
std::string_view recompute_name(Recompute recompute);
std::optional<Recompute> recompute_of_name(std::string_view name);

/// Where an original program deviates from its paper, or has an evident bug, by its name in docs/planners.md.
struct Quirk {
  std::string_view name;
  std::string_view description;
  /// Whether `--compat all` switches it on.
  bool in_all = true;
};

/// What planners of other projects are asked beside the rest, in the terms of their programs; others pass over it.
struct OriginalOptions {
  /// Names of quirks to reproduce; each planner knows its own.
  std::set<std::string, std::less<>> compat;
  /// A plan may leave devices idle where the original uses all.
  bool use_fewer = false;
  bool charge_traffic = true;
  /// max-throughput: devices may hold several runs of layers.
  bool non_contiguous = false;
  /// Variants that recompute may be chosen.
  bool recompute = true;
  int max_degree = std::numeric_limits<int>::max();
  /// DAPPLE: samples of a step, of a micro-batch, and of the unit of work that was profiled.
  int64_t batch = 1024, micro_batch = 64, profile_batch = 64;
};

/// Micro-batches of a step where neither a flag nor the profile says how many.
inline constexpr int64_t kUsualMicroBatches = 16;
/// Samples of a micro-batch where nothing says how many: the largest divisor of the batch that is at most 64.
int64_t usual_micro_batch(int64_t batch);

struct PlanCandidate;

/// What a plan of a profile comes to: seconds of a step, and whether it fits the devices. One that does not is timed as
/// if it did.
struct PlanMeasure {
  double step_seconds = kInfinity;
  bool fits = true;
};

/// When a search ends at the latest, with the best plan that it has.
struct SearchTime {
  double time_limit = kInfinity;
  /// Set by another thread; may be null.
  const std::atomic<bool>* cancel = nullptr;
};

struct PlanRequest : SearchTime {
  /// Needs: both outlive the call and pass their verifiers.
  const ir::PlanGraph* graph = nullptr;
  const ir::Cluster* cluster = nullptr;
  /// Exactly this many stages; absent: any number.
  std::optional<int> stages;
  /// The same in every stage; absent: searched over the powers of two up to the batch, and the batch.
  std::optional<Samples> micro_batch;
  /// Let stages have different micro-batch sizes, with k such that k times the size is the same everywhere. Slower.
  bool micro_batch_per_stage = false;
  bool replication = true;
  std::vector<ForcedReplicas> replicas;
  /// Refuse plans that do not fit the devices.
  bool limit_memory = true;
  Recompute recompute = Recompute::kAuto;
  /// The replicas of a stage divide the optimizer's state among them.
  bool shard_optimizer_state = false;
  /// Threads of the search. The plan does not depend on it.
  int threads = 1;
  /// Seconds of one step of a plan, or infinity for a plan that cannot be used; empty: cost::iteration_time. Asked of
  /// the best few by cost::iteration_time.
  std::function<double(const ir::Assignment&)> evaluate;
  /// Batches follow each other without draining, so that neither filling nor draining counts: the closed form of a step
  /// is then what the busiest device works on a batch.
  bool without_flush = false;
  /// With `without_flush`: plans are ranked, before `evaluate` is asked, by the closed form of a batch that drains.
  bool ranks_drained = false;
  /// Why `evaluate` said infinity; may be empty.
  std::function<std::optional<Diagnostic>(const ir::Assignment&)> refusal;
  /// `auto` also searches with single parameters fixed (auto/narrowed.cpp), which takes several times as long.
  bool thorough = true;
  /// The planner `sequential` is asked too: no other needs to search the line of all nodes.
  bool beside_sequential = false;
  /// A step that is known already: of plans that cannot be shorter, a planner may find none.
  double known_step = std::numeric_limits<double>::infinity();
  /// The plan that the planner `manual` checks and uses as given.
  const ir::Assignment* manual = nullptr;

  /// The profile that `graph` came from, null for a model. Planners of other projects then plan its unit of work, one
  /// sample, by the numbers of the file, within the limits of their searches instead of those of one size among many;
  /// ours plan the folded graph (cost/fold.h) on the accelerators.
  const ir::ImportedProfile* profile = nullptr;
  /// Needs: set where `profile` is. Asked of the plans that an answer has in the end.
  std::function<PlanMeasure(const PlanCandidate&)> measure = {};
  OriginalOptions original = {};
  /// `auto` takes only plans that run every node on an accelerator.
  bool accelerators_only = false;
};

/// A planner's own number for a plan.
struct OwnObjective {
  /// In `unit`, and a proven bound that no plan of the planner's search space beats.
  double objective = 0, bound = 0;
  /// "s/sample", "s", "ms", "us", "speed-up", "1/s".
  std::string_view unit = {};
  bool larger_is_better = false;
  /// Relative distance from the bound, zero where the plan is proven best.
  double gap() const;
  /// Whether the plan fits as the project counts memory that the profile comes from.
  bool fits = false;
};

struct PlanCandidate {
  /// Stages in topological order; what build_stage_graph accepts.
  ir::Assignment assignment;
  /// GraphPipe's objective: the largest time per sample of a device, seconds (cost::bottleneck_time_per_sample).
  double objective = 0;
  /// What `evaluate` said: seconds of one step.
  double step_seconds = 0;
  /// Where the planner goes by another number than `objective`.
  std::optional<OwnObjective> own = {};
  /// Of plans of profiles: what PlanRequest::measure said.
  bool fits = true;
};

/// The order of an answer: the shorter step first, then the smaller objective.
bool is_better(const PlanCandidate& a, const PlanCandidate& b);

/// How a search went.
struct SearchRecord {
  /// False where a limit or `cancel` ended it; `stopped` may say which, in words, or who found the plan.
  bool complete = true;
  std::string stopped = {};
  /// Of searches over sets of layers: sets visited, and pairs of them tried as stages.
  int64_t states = 0, pairs = 0;
  double search_seconds = 0;
};

struct PlanAnswer : SearchRecord {
  /// At least one, best step first; ties go to the lower objective, then to the earlier found.
  std::vector<PlanCandidate> candidates;
  /// The smallest objective among the candidates, and a proven bound on that of any plan, seconds per sample.
  double objective = 0, bound = 0;
  double gap() const { return bound > 0 ? objective / bound - 1 : 0; }
};

struct UnitRequest;
struct UnitAnswer;

/// Whether the planner `auto` asks another one. What is asked first gives its local search plans to start from.
enum class AskedByAuto : uint8_t { kNever, kFirst, kThen };

/// What a planner does otherwise than most. Callers ask for this rather than for names.
struct PlannerTraits {
  /// Asks the other planners.
  bool asks_others = false;
  /// Uses the plan of the request (PlanRequest::manual) as given.
  bool is_given = false;
  /// Tries every plan, on all placements, so only of small graphs.
  bool is_exhaustive = false;
  /// Its only plan is one stage with replicas.
  bool is_one_stage = false;
  /// Its plans use every device, as far as the batch goes round.
  bool uses_all_devices = false;
  /// Quick enough that `auto` asks it again for parts of the cluster, and for the devices in other orders.
  bool asked_on_parts = false;
  /// Cuts for a policy with a stage graph of its own are its business too.
  bool takes_shapes = false;
  /// Of profiles: divides the unit of work that was measured into micro-batches of its own.
  bool divides_unit = false;
  /// Of profiles: plans the nodes of the file as they are, on CPUs too, and not forwards joined with backwards. A
  /// device may hold several runs of them (OriginalOptions::non_contiguous).
  bool plans_file_nodes = false;
};

/// Planners that other searches or commands build on.
inline constexpr std::string_view kGraphPipe = "graphpipe", kSequential = "sequential", kEqualSplit = "equal-split",
                                  kManual = "manual";

struct PlannerEntry {
  std::string_view name;
  std::string_view description;
  /// Errors: kNoFeasiblePlan with the smallest shortfall found; kBadPlan for a manual plan or a request that breaks a
  /// rule; kInterrupted where the search ended before any plan was found.
  Result<PlanAnswer> (*plan)(const PlanRequest&) = nullptr;
  AskedByAuto asked = AskedByAuto::kNever;
  /// Of planners of other projects: what they deviate in, and the search in their own terms
  /// (cost_models/unit_request.h), which plans profiles and, where `plan` is null, models.
  std::span<const Quirk> quirks = {};
  Result<UnitAnswer> (*search)(const UnitRequest&) = nullptr;
  PlannerTraits traits = {};
};

std::span<const PlannerEntry> planners();
/// Those that have the trait.
std::vector<const PlannerEntry*> planners_with(bool PlannerTraits::*trait);
/// The entry of a planner, or null.
const PlannerEntry* find_planner(std::string_view name);

/// Runs a planner without the checks of plan(): for planners that ask others.
Result<PlanAnswer> ask(const PlannerEntry& planner, const PlanRequest& request);

/// Expands "all" and "PD2,P1" to the quirks of a planner. Errors (kUsage): a name that the planner does not know.
Result<std::set<std::string, std::less<>>> parse_compat(const PlannerEntry& planner, std::string_view list);

/// How far a value is above its bound, relatively; infinity where the bound is zero and the value is not.
double gap_over(double value, double bound);

/// Checks the request and its graph, runs the planner, checks every candidate with check_plan.
/// Errors: those of verify_plan_graph and of the planner; kUsage for an unknown name.
Result<PlanAnswer> plan(std::string_view planner, const PlanRequest& request);

}  // namespace graphpipe::partitioner
