#include "driver/verbs/generate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "codegen/generate.h"
#include "driver/cli/commands.h"
#include "driver/launch/build_folder.h"
#include "driver/launch/folder_lock.h"
#include "driver/launch/linked_file.h"
#include "driver/launch/output_folder.h"
#include "driver/launch/process.h"
#include "driver/launch/runtime_sources.h"
#include "driver/report/plan_report.h"
#include "driver/report/report.h"
#include "files/plan.h"
#include "wire/exit_codes.h"
#include "wire/manifest.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

int finish_compile(const Options& options, const Pipeline& pipeline, const Diagnostics& notes) {
  if (options.json) print_json("compile", plan_json(pipeline), notes, pipeline.complete);
  else std::cout << plan_text(pipeline);
  return end_code(pipeline.complete);
}

Diagnostics joined(Diagnostics notes, const Diagnostics& more) {
  notes.insert(notes.end(), more.begin(), more.end());
  return notes;
}

// The memory of a plan must be what its programs take.
Status check_runnable(const Pipeline& pipeline) {
  const ir::Plan& plan = pipeline.plan;
  for (size_t stage = 0; stage < plan.assignment.choice.size(); ++stage) {
    if (!plan.assignment.choice[ir::StageId(stage)].divides_optimizer_state()) continue;
    const std::string why = why_state_stays_whole(pipeline);
    if (why.empty()) continue;
    return Diagnostic{
        .code = Code::kBadPlan,
        .origin = plan.spec.path,
        .message = text("stages[", stage, "].shard_optimizer_state: the runtime does not shard it where ", why),
        .hint = "plan without --shard-optimizer, or set the field to false"};
  }
  return Ok{};
}

// The duration of the longest compute action. Messages do not count: bytes that move are progress.
int64_t longest_action_ms(const scheduler::BuiltSchedule& built) {
  int64_t longest = 0;
  for (size_t program = 0; program < built.timeline.spans.size(); ++program) {
    const std::vector<scheduler::Span>& spans = built.timeline.spans[program];
    const std::vector<ir::Action>& actions = built.schedule.programs[program].actions;
    for (size_t i = 0; i < spans.size(); ++i)
      if (wire::is_compute(actions[i].op)) longest = std::max(longest, spans[i].end.count - spans[i].start.count);
  }
  return static_cast<int64_t>(std::ceil(static_cast<double>(longest) / scheduler::kTicksPerSecond * 1000));
}

FolderExtras extras_of(const Options& options) {
  return {.bundle = options.bundle, .link_weights = options.link_weights};
}

}  // namespace

Result<FolderNotes> generate_folder(const Pipeline& pipeline, const std::string& folder, const FolderExtras& extras) {
  GP_TRY_VOID(check_runnable(pipeline));
  GP_TRY(auto digests, file_digests(pipeline.model.imported));
  const WeightOrigin origin{.model = pipeline.model.imported.files.front(),
                            .trusted_root = pipeline.plan.spec.trusted_root.raw(),
                            .digests = std::move(digests),
                            .link_data_files = extras.link_weights};
  GP_TRY_VOID(check_finite_weights(pipeline.model.graph, origin));
  const codegen::GenerateOptions options{.tool_version = wire::kToolVersion,
                                         .model_digest = pipeline.model.digest,
                                         .plan_digest = plan_digest(pipeline.plan),
                                         .optimizer = pipeline.plan.spec.optimizer,
                                         .threads = pipeline.plan.threads,
                                         .seed = pipeline.plan.seed,
                                         .longest_action_ms = longest_action_ms(pipeline.built),
                                         .arenas = pipeline.arenas,
                                         .profile = extras.profile};
  GP_TRY(std::vector<codegen::SourceFile> sources,
         codegen::generate(pipeline.model.graph, pipeline.priced, pipeline.stages, pipeline.built.schedule, options));
  if (extras.bundle) {
    GP_TRY(std::vector<codegen::SourceFile> runtime, runtime_sources());
    for (codegen::SourceFile& source : runtime) sources.push_back(std::move(source));
  }
  // The plan comes first: if the disk fills up before the rest is written, the plan still marks the folder as ours.
  sources.insert(sources.begin(),
                 {.path = std::string(wire::kPlanFile), .text = files::print_plan(portable_plan(pipeline.plan))});
  std::vector<std::pair<std::string, std::string>> links = {
      {std::string(wire::kModelLink), pipeline.plan.spec.path.raw()}};
  if (!pipeline.plan.profile.empty()) links.emplace_back(wire::kProfileLink, pipeline.plan.profile.raw());
  for (const auto& [name, target] : links) GP_TRY_VOID(check_link(folder, name, target));
  GP_TRY(FolderNotes written, write_folder(folder, sources, pipeline.model.graph, origin, options.plan_digest));
  for (const auto& [name, target] : links) GP_TRY_VOID(link_file(folder, name, target));
  return written;
}

int run_generate(const Options& options) {
  const Result<Pipeline> pipeline = with_places(load_pipeline(options.input, options.model.trusted_root));
  if (!pipeline) return report_problems(options, "generate", pipeline.problems());
  report_notes(options, pipeline->machine.notes);
  const Result<FolderLock> lock = FolderLock::take(options.output);
  if (!lock) return report_problems(options, "generate", lock.problems());
  const Result<FolderNotes> written = generate_folder(*pipeline, options.output, extras_of(options));
  if (!written) return report_problems(options, "generate", written.problems());
  report_notes(options, written->notes);
  if (options.json) print_json("generate", plan_json(*pipeline), joined(pipeline->model.notes, written->notes));
  else std::cout << "wrote " << Terminal::encode_text(options.output).str() << "; compile it with `graphpipe build`\n";
  return 0;
}

int run_compile(const Options& options) {
  catch_interrupts();
  if (const Status path = check_build_path(options.output); !path)
    return report_problems(options, "compile", path.problems());
  const Result<Pipeline> pipeline = with_digest(with_places(make_pipeline(options)));
  if (!pipeline) return report_problems(options, "compile", pipeline.problems());
  report_notes(options, pipeline->model.notes);
  const Result<FolderLock> lock = FolderLock::take(options.output);
  if (!lock) return report_problems(options, "compile", lock.problems());
  const Result<FolderNotes> written = generate_folder(*pipeline, options.output, extras_of(options));
  if (!written) return report_problems(options, "compile", written.problems());
  report_notes(options, written->notes);
  const Status built = build_folder(options.output, options);
  if (!built) return report_problems(options, "compile", built.problems());
  return finish_compile(options, *pipeline, joined(pipeline->model.notes, written->notes));
}

}  // namespace graphpipe::driver
