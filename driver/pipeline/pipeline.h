#pragma once
// The story from a model to a checked plan: what is decided, and everything that follows from it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/options.h"
#include "driver/pipeline/machine.h"
#include "driver/pipeline/model_source.h"
#include "ir/plan.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"
#include "partitioner/planner.h"
#include "scheduler/analysis/steady_state.h"
#include "scheduler/build_schedule.h"

namespace graphpipe::driver {

/// The best plan of several stages that a search found beside another one.
struct MultiStageAlternative {
  size_t stages = 0;
  /// Of its first stage.
  int64_t micro_batch = 0;
  double step_seconds = 0;
  /// Of its fullest device.
  int64_t peak_bytes = 0;
};

/// Another order of the same stages.
struct PolicyAlternative {
  std::string policy;
  double step_seconds = 0;
  /// Of its fullest device.
  int64_t peak_bytes = 0;
};

/// A plan with all that is derived from it. Stages and order are fixed.
struct Pipeline {
  ir::Plan plan;
  /// Where the devices of a new plan come from; its cluster stands in the plan. Without a sentence for a plan of a
  /// file.
  Machine machine;
  /// Used where the plan has no schedule yet.
  OrderOptions order;
  TrainingGraph model;
  ir::PlanGraph priced;
  ir::StageGraph stages;
  /// Per stage the modules that lie in it alone (stage_modules.h).
  std::vector<std::vector<std::string>> modules;
  scheduler::BuiltSchedule built;
  /// Per program of the schedule, once place_tensors() has found it (scheduler/memory/arena.h).
  std::vector<Bytes> arenas;
  /// No schedule of this plan takes less than `step_bound` seconds; no plan of this model on these devices less than
  /// `model_bound`.
  double step_bound = 0, model_bound = 0;
  /// How long search_plan() took; 0 for a plan that was given.
  double search_seconds = 0;
  /// What the planner that was asked went by.
  partitioner::OwnObjective objective;
  /// Of asynchronous schedules.
  std::optional<scheduler::SteadyState> steady;
  /// Where `auto` answered with plain data parallelism.
  std::optional<MultiStageAlternative> multi_stage;
  /// Of a plan that was searched (faster_policy.h).
  std::optional<PolicyAlternative> faster_policy;
  /// False where the time limit or an interrupt ended the search.
  bool complete = true;
};

/// How the stages of a new plan are executed: as `asked` ("graph" or "chain"), else as a chain where the policy orders
/// nothing else.
ir::Execution execution_for(std::string_view asked, std::string_view policy);

/// Whether a chain changes how the stages run: some of them pass on what only others read.
bool is_made_a_chain(const ir::StageGraph& stages);

/// Imports and prices the model: a pipeline without an assignment. `machines`: those of a plan file, in place of what
/// the options name.
Result<Pipeline> price_model(const Options& options, const ir::Cluster* machines = nullptr);

/// Imports, prices, searches, and keeps the candidate that simulates best. With `--plan` the assignment of that file is
/// checked and used as given, and what no flag says is as the file has it (given_plan.h). Errors: all problems of the
/// steps.
Result<Pipeline> make_pipeline(const Options& options);

/// Reads a plan file (or the plan in a folder) and derives everything again. Plan files come from anywhere, so they
/// cannot say what a model may read: `trusted_root` is what the user says now, as ModelSpec has it. `execution`: how
/// the stages are executed instead (execute_as()), or "". Errors: also kBadPlan where the model is no longer the one
/// that the plan was made for.
Result<Pipeline> load_pipeline(const std::string& path, const std::string& trusted_root,
                               std::string_view execution = "");

/// Adds all that follows from the plan and the model that stand in `pipeline`: stages, order, bounds, all of it
/// checked. A plan without a schedule gets one from its policy. Errors: kBadPlan, kBadSchedule, kNoFeasiblePlan.
Status derive(Pipeline& pipeline);

/// The priced graph with the versions of weights that the schedules of the plan's policy keep.
ir::PlanGraph as_held(const Pipeline& pipeline);

/// What memory is counted by: the code that the pipeline's stages become, where candidates go by bounds. Errors: those
/// of the code generator.
Result<scheduler::CountedItems> counted_items(const Pipeline& pipeline);

/// The model's digest, in the plan too. Errors: kUnreadableFile.
Status find_digest(Pipeline& pipeline);

/// The pipeline with the model's digest, in the plan too: for what is written to be compared with later.
/// Errors: kUnreadableFile.
Result<Pipeline> with_digest(Result<Pipeline> pipeline);

/// The pipeline with the arena of each device. Apart from derive(): it takes longer, and only programs need it.
Result<Pipeline> with_places(Result<Pipeline> pipeline);

/// What it was read from: the model with its external data, and the profile of its plan. No command writes over them.
std::vector<std::string> files_read(const Pipeline& pipeline);

/// Whether it runs no backward: the loss is computed and nothing is trained.
bool is_forward_only(const ir::Schedule& schedule);

/// The plan as a generated folder holds it: its model and its profile are links of the folder (linked_file.h).
ir::Plan portable_plan(ir::Plan plan);

/// The digest that programs and weights of this plan carry: of the portable plan, so it does not depend on places.
std::string plan_digest(const ir::Plan& plan);

/// The plan file that `path` means: itself, or plan.json in it where it is a folder.
std::string plan_file_of(const std::string& path);

}  // namespace graphpipe::driver
