// graphpipe simulate: what a plan leads to, drawn.

#include <array>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/pipeline.h"
#include "driver/pipeline/plan_profile.h"
#include "driver/report/html/timeline_picture.h"
#include "driver/report/plan_report.h"
#include "driver/report/profile_plan_report.h"
#include "driver/report/report.h"
#include "driver/report/timeline_report.h"
#include "files/text_file.h"
#include "scheduler/render/gantt.h"
#include "support/trace_events.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

/// What is drawn of a plan: of a model, or of a profile of another project.
struct Simulated {
  const ir::StageGraph& stages;
  const scheduler::BuiltSchedule& built;
  /// The modules of the stages; may be empty.
  scheduler::StageNames names;
};

std::string drawing(const Simulated& plan, const Options& options) {
  const std::string& format = options.format;
  const auto& [stages, built, names] = plan;
  if (format == "svg") return timeline_picture(stages, built, names);
  if (format == "trace") return scheduler::trace_json(stages, built.schedule, built.timeline, built.memory);
  return scheduler::gantt_text(stages, built.schedule, built.timeline,
                               {.width = 110, .color = takes_color(options), .metrics = false});
}

// Reads a trace that a run has written; any other file is refused, so that nothing else gets into the joined trace.
Result<std::string> read_executed(const Options& options) {
  if (options.format != "trace")
    return usage("--executed " + options.executed, "only a trace shows both", "add --format trace");
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  GP_TRY(std::string file, files::read_file(options.executed, kMaxBytes));
  if (events_of_trace_file(file).empty()) {
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(options.executed),
                      .message = "this is not a trace that `graphpipe run --trace` has written",
                      .hint = "run it again with --trace"};
  }
  return file;
}

constexpr TimeScale kSeconds = {.ticks_per_unit = scheduler::kTicksPerSecond, .shown = human_seconds};

// With what is said of the plan itself.
std::string simulation_text(const Simulated& plan, std::string of_plan) {
  return of_plan + timeline_text(plan.stages, plan.built.schedule, plan.built.timeline, kSeconds);
}

JsonObject simulation_json(const Simulated& plan, JsonObject of_plan) {
  const scheduler::BuiltSchedule& built = plan.built;
  add_timeline(of_plan, plan.stages, built.schedule, built.timeline, kSeconds);
  add_memory(of_plan, built.schedule, built.timeline, built.memory, kSeconds);
  return of_plan;
}

Status check_drawing(const Options& options) {
  if (options.json && options.output.empty() && options.format != "text")
    return usage("--format " + options.format, "with --json the picture would be drawn nowhere",
                 "name a file for it with -o, or leave one of them out");
  return Ok{};
}

/// The picture goes to the file of -o where there is one, the words to the console where it is free for them.
Status write_drawing(const Options& options, const std::string& picture) {
  if (options.output.empty()) return Ok{};
  return files::write_file(options.output, picture);
}

void print_drawing(const Options& options, const std::string& picture, const std::string& words) {
  if (!options.output.empty()) std::cout << words;
  else std::cout << picture << (options.format == "text" ? words : "");
}

/// Of a profile of another project, whose file the plan names where no flag does.
Status simulate_profile(const Options& asked) {
  GP_TRY_VOID(check_drawing(asked));
  if (!asked.executed.empty())
    return usage("--executed " + asked.executed, "nothing runs the plan of another project's profile", "leave it out");
  Options named = asked;
  named.plan.plan = plan_file_of(asked.input);
  GP_TRY(const Options options, completed_by_plan(std::move(named)));
  const std::array<std::string, 2> read{options.plan.plan, options.plan.profile};
  GP_TRY_VOID(check_output(options, read));
  GP_TRY(const auto problem, ProfileProblem::read(options));
  GP_TRY(const partitioner::PlanAnswer answer, problem->plan(options.plan.planner));
  GP_TRY(const ProfileProblem::Scheduled scheduled, problem->scheduled(answer.candidates.front()));
  const Simulated plan{.stages = scheduled.stages, .built = scheduled.built, .names = {}};
  const std::string picture = drawing(plan, options);
  GP_TRY_VOID(write_drawing(options, picture));
  if (options.json) print_json("simulate", simulation_json(plan, profile_json(options, *problem, answer)), {});
  else print_drawing(options, picture, simulation_text(plan, profile_text(options, *problem, answer)));
  return Ok{};
}

Status simulate_model(const Options& options) {
  const std::string plan_file = plan_file_of(options.input);
  GP_TRY_VOID(check_output(options, {&plan_file, 1}));
  GP_TRY_VOID(check_drawing(options));
  GP_TRY(const Pipeline pipeline,
         with_places(load_pipeline(options.input, options.model.trusted_root, options.plan.execute)));
  GP_TRY_VOID(check_output(options, files_read(pipeline)));
  report_notes(options, pipeline.machine.notes);
  const Simulated plan{.stages = pipeline.stages, .built = pipeline.built, .names = stage_names(pipeline)};
  std::string picture = drawing(plan, options);
  if (!options.executed.empty()) {
    GP_TRY(const std::string executed, read_executed(options));
    picture = join_trace_files(picture, executed);
  }
  GP_TRY_VOID(write_drawing(options, picture));
  if (options.json) print_json("simulate", simulation_json(plan, plan_json(pipeline)), pipeline.model.notes);
  else print_drawing(options, picture, simulation_text(plan, plan_text(pipeline)));
  return Ok{};
}

}  // namespace

int run_simulate(const Options& options) {
  const Status simulated = options.foreign.is_foreign() ? simulate_profile(options) : simulate_model(options);
  if (!simulated) return report_problems(options, "simulate", simulated.problems());
  return 0;
}

}  // namespace graphpipe::driver
