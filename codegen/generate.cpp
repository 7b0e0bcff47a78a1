#include "codegen/generate.h"

#include "codegen/autograd_oracle.h"
#include "codegen/block_table.h"
#include "codegen/cmake_project.h"
#include "codegen/cut_stages.h"
#include "codegen/device_program.h"
#include "codegen/input_table.h"
#include "codegen/names.h"
#include "codegen/products.h"
#include "codegen/slot_layout.h"
#include "codegen/stage_library.h"
#include "codegen/stage_table.h"

namespace graphpipe::codegen {
namespace {

void append(std::vector<SourceFile>& files, std::vector<SourceFile> more) {
  for (SourceFile& file : more) files.push_back(std::move(file));
}

/// Name the generator and its inputs. A stage's code depends on the model and on the nodes that the stage holds, but
/// not on the order or the micro-batches: its files do not name the plan.
FirstLines first_lines(const GenerateOptions& options) {
  const auto digest = [](const std::string& hex) { return CppComment::encode(ModelText(hex)).str(); };
  const std::string start = text("// Written by graphpipe ", CppComment::encode(ModelText(options.tool_version)).str(),
                                 " from model sha256:", digest(options.model_digest));
  const std::string end = "; changes will be lost.\n";
  return {start + end, text(start, " and plan sha256:", digest(options.plan_digest), end)};
}

Diagnostic idle_replica(ir::DeviceId device, ir::StageId stage, const ir::StageChoice& choice) {
  const std::string who =
      text("device ", device, " of stage ", stage, " has nothing to do: the stage has ", choice.devices.size());
  if (choice.mode == ir::ReplicaMode::kSplit)
    return {.code = Code::kBadPlan,
            .message = text(who, " replicas, which divide micro-batches of ", choice.micro_batch, " samples"),
            .hint = "use fewer replicas or larger micro-batches"};
  return {.code = Code::kBadPlan,
          .message = text(who, " replicas that take micro-batches in turn, and fewer micro-batches"),
          .hint = "use fewer replicas, smaller micro-batches or a larger batch"};
}

/// Checks that every device of a stage has something to do. A replica may be assigned no micro-batch, or no samples of
/// any.
Status check_busy(const ir::StageGraph& stages, const ir::Schedule& schedule) {
  IdSet<ir::DeviceId> busy;
  for (const ir::Program& program : schedule.programs)
    if (!program.actions.empty()) busy.insert(program.device);
  for (const ir::StageId stage : stages.stage_ids())
    for (const ir::DeviceId device : stages.stages[stage].choice.devices)
      if (!busy.contains(device)) return idle_replica(device, stage, stages.stages[stage].choice);
  return Ok{};
}

Bytes arena_of(const ir::Program& program, const ir::Schedule& schedule, const GenerateOptions& options) {
  const auto index = static_cast<size_t>(&program - schedule.programs.data());
  return index < options.arenas.size() ? options.arenas[index] : Bytes(0);
}

}  // namespace

Result<std::vector<SourceFile>> generate(const ir::Graph& graph, const ir::PlanGraph& plan,
                                         const ir::StageGraph& stages, const ir::Schedule& schedule,
                                         const GenerateOptions& options) {
  const FirstLines first = first_lines(options);
  // A profile and the oracle need separate functions for input and weight gradients.
  const bool apart = options.profile || options.by_autograd;
  const IdSet<ir::StageId> joined = ir::undivided_backwards(schedule, apart ? 0 : stages.stages.size());
  GP_TRY(auto cuts, cut_stages(graph, plan, stages, joined));
  if (options.by_autograd) {
    if (cuts.size() != 1)
      return Diagnostic{.code = Code::kUsage,
                        .origin = {},
                        .message = text("the autograd oracle is one stage, the plan has ", cuts.size()),
                        .hint = "plan with --stages 1"};
    make_oracle(cuts[ir::StageId(0)]);
  }
  const WeightGroups groups = weight_groups(graph, cuts);
  GP_TRY_VOID(check_busy(stages, schedule));
  const Ranks ranks = rank_devices(stages, schedule);
  std::vector<SourceFile> files;
  ir::StageId loss_stage;
  MarkTable marks;
  BlockTable blocks;
  for (ir::StageId stage : stages.stage_ids()) {
    const SlotLayout layout = lay_out_slots(graph, cuts[stage]);
    if (layout.loss >= 0) loss_stage = stage;
    const StageTextOptions stage_options = {.first_line = first.of_model,
                                            .marks = options.profile ? &marks : nullptr,
                                            .tells_gradients = stages.stages[stage].choice.devices.size() > 1};
    append(files, write_stage_functions(graph, stage, cuts[stage], layout, stage_options, blocks));
    files.push_back(write_stage_table(graph, stage, cuts[stage], layout, groups, first.of_model));
  }
  append(files, blocks.files(first.of_model));
  append(files, write_plan_table(graph, stages, loss_stage, schedule, ranks, groups, options, first));
  for (size_t rank = 0; rank < ranks.programs.size(); ++rank)
    append(files, write_device_program(ranks, rank, arena_of(*ranks.programs[rank], schedule, options), first));
  files.push_back(write_common_main(ranks, first.of_model));
  if (options.profile) files.push_back(write_profile_main(marks, ranks, first.of_plan));
  files.push_back(write_cmake_project(ranks, files, first.of_model));
  files.push_back(write_names(graph));
  files.push_back(write_input_table(graph, cuts, stages, schedule));
  files.push_back(write_products(graph, cuts, schedule, options.threads));
  return files;
}

}  // namespace graphpipe::codegen
