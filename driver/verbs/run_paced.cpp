#include "driver/verbs/run_paced.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "driver/cli/usage.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/launch.h"
#include "driver/launch/program_folder.h"
#include "driver/pipeline/pace_plan.h"
#include "driver/report/report.h"
#include "files/text_file.h"
#include "support/median.h"
#include "support/output_file.h"
#include "wire/exit_codes.h"
#include "wire/pace_report.h"
#include "wire/run_outputs.h"

namespace graphpipe::driver {
namespace {

/// The ranks are processes on one host, each with connections to many others.
constexpr size_t kMaxRanks = 256;

// A paced run trains nothing, so flags about training would be ignored: they are refused.
Status check_paced_flags(const Options& options) {
  static const std::set<std::string> kTaken = {"--pace",         "--pace-scale", "--pace-bytes", "--steps",
                                               "--trace",        "--json",       "--quiet",      "--stall-timeout",
                                               "--trusted-root", "--transport",  "--config"};
  Diagnostics problems;
  for (const std::string& flag : options.given)
    if (flag.starts_with("--") && !kTaken.contains(flag))
      problems.push_back(
          usage(flag, "a paced run trains nothing and reads no data", "leave it out, or leave out --pace"));
  if (!options.run.output.trace.empty()) {
    const std::string& trace = options.run.output.trace;
    const Status writable = check_output_path(trace);
    if (!writable) problems.insert(problems.end(), writable.problems().begin(), writable.problems().end());
    std::error_code error;
    const std::string kept = wire::kept_file(trace, options.input, options.run);
    if (!kept.empty() || std::filesystem::equivalent(trace, options.input, error))
      problems.push_back(
          usage("--trace", "this file is " + (kept.empty() ? "the plan" : kept), "name another file to write"));
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

struct PacedRun {
  Pipeline pipeline;
  wire::PacePlan plan;
  wire::PaceReport measured;
  int cores = 1;
  /// Measured seconds of a step, divided by the scale of the plan's times.
  double step() const { return median(measured.steps) / plan.scale; }
  double simulated() const { return pipeline.built.step_seconds(); }
};

/// The programs run all batches between two drains and report them as one step; this converts the report to one batch.
wire::PaceReport of_one_step(wire::PaceReport report, int64_t batches) {
  const auto count = static_cast<double>(batches);
  for (double& seconds : report.steps) seconds /= count;
  for (double* number : {&report.late, &report.pauses, &report.processor, &report.sent}) *number /= count;
  return report;
}

Result<PacedRun> run_plan_paced(const Options& options) {
  GP_TRY_VOID(check_paced_flags(options));
  GP_TRY(Pipeline pipeline, load_pipeline(options.input, options.model.trusted_root));
  for (const std::string& file : files_read(pipeline))
    if (is_same_file(options.run.output.trace, file))
      return usage("--trace " + options.run.output.trace, "this file is read by the same command",
                   "name another file to write");
  if (pipeline.plan.cluster.devices.size() > kMaxRanks)
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--pace"),
                      .message = text("a process would be started for each of ", pipeline.plan.cluster.devices.size(),
                                      " devices; the most are ", kMaxRanks),
                      .hint = "simulate the plan, or plan for fewer devices"};
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  GP_TRY(wire::PacePlan plan,
         pace_plan_of(pipeline, {.scale = options.pace_scale, .share = options.pace_bytes, .cores = cores}));
  GP_TRY(const ProgramFolder folder, ProgramFolder::make("", "graphpipe-pace"));
  GP_TRY_VOID(files::write_file(folder.path() + "/" + wire::kPacePlanFile, wire::print_pace_plan(plan)));
  wire::RunOptions run = for_programs(options.run, pipeline.plan, false);
  run.launch.threads = 1;
  // A message may be in flight for most of a step, and no bytes move meanwhile.
  if (!run.launch.stall_timeout)
    run.launch.stall_timeout = std::max(wire::kStallTimeout, 2 * pipeline.built.seconds() * plan.scale);
  const auto ranks = static_cast<int>(plan.programs.size());
  GP_TRY(const RunOutcome outcome, launch_paced(folder.path(), ranks, run));
  PacedRun paced{.pipeline = std::move(pipeline), .plan = std::move(plan), .measured = {}, .cores = cores};
  if (outcome.exit_code != wire::kExitOk) return failed_run(outcome, "the paced run", options.input);
  std::optional<wire::PaceReport> report = wire::parse_pace_report(outcome.report);
  if (!report || report->steps.empty())
    return Diagnostic{.code = Code::kPeerFailed,
                      .origin = ModelText(options.input),
                      .message = "the paced run ended well, but its report cannot be read",
                      .hint = "install graphpipe and its runtime from one version"};
  paced.measured = of_one_step(std::move(*report), paced.pipeline.built.batches);
  return paced;
}

JsonObject paced_json(const PacedRun& run) {
  const wire::PaceReport& measured = run.measured;
  JsonObject object;
  object.add("paced", true)
      .add("devices", run.plan.programs.size())
      .add("transport", measured.transport)
      .add("measured_step", run.step())
      .add("simulated_step", run.simulated())
      .add("ratio", run.step() / run.simulated())
      .add("pace_scale", run.plan.scale)
      .add("pace_bytes", run.plan.share)
      .add("sent_bytes", measured.sent)
      .add("step_seconds", measured.steps)
      .add("late_seconds", measured.late)
      .add("pauses", measured.pauses)
      .add("processor_seconds", measured.processor);
  return object;
}

std::string paced_text(const PacedRun& run) {
  const wire::PaceReport& measured = run.measured;
  const double wall = median(measured.steps);
  std::ostringstream out;
  out << run.plan.programs.size() << " ranks over " << measured.transport << "; times x " << run.plan.scale << ", "
      << human_bytes(measured.sent) << " of zeros sent in a step";
  if (run.plan.share < 1)
    out << " (" << json_number(run.plan.share) << " of the plan's; links take as long as with all)";
  out << "\nmeasured step " << human_seconds(run.step()) << ", simulated " << human_seconds(run.simulated())
      << ", ratio " << text(std::round(run.step() / run.simulated() * 1e4) / 1e4) << "\n";
  out << "of each step: processors busy " << text(std::round(measured.processor / wall / run.cores * 1e3) / 10)
      << " %, pauses too long " << text(std::round(measured.late / wall * 1e3) / 10) << " %\n";
  return out.str();
}

}  // namespace

int run_paced(const Options& options) {
  const Result<PacedRun> run = run_plan_paced(options);
  if (!run) return report_problems(options, "run", run.problems());
  report_notes(options, run->pipeline.model.notes);
  if (options.json) print_json("run", paced_json(*run), run->pipeline.model.notes);
  else std::cout << paced_text(*run);
  return wire::kExitOk;
}

}  // namespace graphpipe::driver
