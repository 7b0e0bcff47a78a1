// graphpipe plan and graphpipe simulate: what is decided, and what it leads to.

#include "files/plan.h"

#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/pipeline.h"
#include "driver/pipeline/plan_profile.h"
#include "driver/report/html/timeline_picture.h"
#include "driver/report/plan_report.h"
#include "driver/report/report.h"
#include "driver/report/timeline_report.h"
#include "files/text_file.h"
#include "scheduler/render/gantt.h"
#include "support/trace_events.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

std::string drawing(const Pipeline& pipeline, const Options& options) {
  const std::string& format = options.format;
  const auto& built = pipeline.built;
  if (format == "svg") return timeline_picture(pipeline);
  if (format == "trace") return scheduler::trace_json(pipeline.stages, built.schedule, built.timeline, built.memory);
  return scheduler::gantt_text(pipeline.stages, built.schedule, built.timeline,
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

std::string simulation_text(const Pipeline& pipeline) {
  return plan_text(pipeline) +
         timeline_text(pipeline.stages, pipeline.built.schedule, pipeline.built.timeline, kSeconds);
}

JsonObject simulation_json(const Pipeline& pipeline) {
  const auto& built = pipeline.built;
  JsonObject object = plan_json(pipeline);
  add_timeline(object, pipeline.stages, built.schedule, built.timeline, kSeconds);
  add_memory(object, built.schedule, built.timeline, built.memory, kSeconds);
  return object;
}

}  // namespace

int run_plan(const Options& options) {
  if (const Status output = check_output(options); !output) return report_problems(options, "plan", output.problems());
  if (options.foreign.is_foreign()) return run_plan_profile(options);
  if (options.model.model.empty())
    return report_problems(options, "plan", {usage("model", "no model is named", "add the ONNX file to plan")});
  catch_interrupts();
  Result<Pipeline> pipeline = make_pipeline(options);
  if (!options.output.empty()) pipeline = with_digest(std::move(pipeline));
  if (!pipeline) return report_problems(options, "plan", pipeline.problems());
  report_notes(options, pipeline->model.notes);
  if (!options.output.empty()) {
    const Status spared = check_output(options, files_read(*pipeline));
    if (!spared) return report_problems(options, "plan", spared.problems());
    const Status written = files::write_plan(options.output, pipeline->plan);
    if (!written) return report_problems(options, "plan", written.problems());
  }
  if (options.json) print_json("plan", plan_json(*pipeline), pipeline->model.notes, pipeline->complete);
  else std::cout << plan_text(*pipeline);
  return end_code(pipeline->complete);
}

int run_simulate(const Options& options) {
  const std::string plan_file = plan_file_of(options.input);
  if (const Status output = check_output(options, {&plan_file, 1}); !output)
    return report_problems(options, "simulate", output.problems());
  if (options.json && options.output.empty() && options.format != "text")
    return report_problems(options, "simulate",
                           {usage("--format " + options.format, "with --json the picture would be drawn nowhere",
                                  "name a file for it with -o, or leave one of them out")});
  const Result<Pipeline> pipeline =
      with_places(load_pipeline(options.input, options.model.trusted_root, options.plan.execute));
  if (!pipeline) return report_problems(options, "simulate", pipeline.problems());
  if (const Status spared = check_output(options, files_read(*pipeline)); !spared)
    return report_problems(options, "simulate", spared.problems());
  report_notes(options, pipeline->machine.notes);
  std::string picture = drawing(*pipeline, options);
  if (!options.executed.empty()) {
    const Result<std::string> executed = read_executed(options);
    if (!executed) return report_problems(options, "simulate", executed.problems());
    picture = join_trace_files(picture, *executed);
  }
  if (!options.output.empty()) {
    const Status written = files::write_file(options.output, picture);
    if (!written) return report_problems(options, "simulate", written.problems());
  }
  if (options.json) {
    print_json("simulate", simulation_json(*pipeline), pipeline->model.notes);
  } else if (options.output.empty()) {
    std::cout << picture << (options.format == "text" ? simulation_text(*pipeline) : "");
  } else {
    std::cout << simulation_text(*pipeline);
  }
  return 0;
}

}  // namespace graphpipe::driver
