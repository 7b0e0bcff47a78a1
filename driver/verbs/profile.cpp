// graphpipe profile: writes, builds and runs a program that measures this model on this machine.

#include "files/profile.h"

#include <filesystem>
#include <iostream>
#include <thread>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/launch/build_folder.h"
#include "driver/launch/check_run.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/free_memory.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "driver/launch/program_folder.h"
#include "driver/launch/unpack_data.h"
#include "driver/report/profile_lines.h"
#include "driver/report/report.h"
#include "driver/verbs/generate.h"
#include "partitioner/planner.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

// One stage with the whole model, whose functions take any number of samples.
Result<Pipeline> one_stage(const Options& options) {
  Options own = options;
  own.plan = {};
  own.plan.devices = own.plan.stages = 1;
  own.plan.cluster = "default";  // with one stage its rates decide nothing
  own.plan.planner = partitioner::kSequential;
  if (own.model.one_sample) own.training.batch = 1;
  own.plan.micro_batch = std::to_string(own.training.batch);
  return with_digest(make_pipeline(own));
}

// Two processes, beside each other as devices of one host are, need cores of their own. On GPUs, of which there may be
// one, one measures; what is between two of them is the cluster's.
bool has_cores_for_two(const Options& options) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return options.run.launch.device == "cpu" && cores >= 2 * options.training.threads;
}

// They hold the model twice, and LibTorch.
bool has_memory_for_two(const Pipeline& pipeline) {
  constexpr double kLibraries = 5e8;
  const auto peak = static_cast<double>(pipeline.built.memory.front().peak.count);
  return 2 * (peak + kLibraries) < free_memory_bytes();
}

Diagnostic measured_alone() {
  return {
      .code = Code::kEnvironment,
      .severity = Severity::kNote,
      .origin = ModelText("profile"),
      .message = "the free memory holds the model once: one process measures it, as if it had the memory to itself",
      .hint = "free some, or profile with a smaller --batch; plans for several devices may be slower than this says"};
}

Result<ir::Profile> measure(const Options& options, const Pipeline& pipeline, const std::string& folder) {
  wire::RunOptions read = options.run;
  GP_TRY(const HeldData held, unpack_data(folder, read, options.quiet));
  wire::RunOptions run = for_programs(read, pipeline.plan, false);
  run.launch.threads = pipeline.plan.threads;
  const Diagnostics found = check_run_files(folder, read);
  if (has_error(found)) return found;
  const bool has_link = has_cores_for_two(options);
  run.launch.alone = has_link && !has_memory_for_two(pipeline);
  if (run.launch.alone) report_notes(options, {measured_alone()});
  GP_TRY(const RunOutcome outcome, launch_profile(folder, has_link ? 2 : 1, run));
  if (outcome.exit_code != wire::kExitOk) return failed_run(outcome, "the profiling program", options.model.model);
  GP_TRY(ir::Profile profile, profile_of_lines(outcome.report, pipeline.model.graph));
  profile.model_digest = pipeline.model.digest;
  profile.threads = pipeline.plan.threads;
  return profile;
}

Result<ir::Profile> make_profile(const Options& options) {
  GP_TRY(const Pipeline pipeline, one_stage(options));
  GP_TRY_VOID(check_output(options, files_read(pipeline)));
  report_notes(options, pipeline.model.notes);
  GP_TRY(const ProgramFolder folder, ProgramFolder::make(options.keep, "graphpipe-profile"));
  GP_TRY_VOID(generate_folder(pipeline, folder.path(), {.profile = true}));
  if (Status built = build_folder(folder.path(), options, "profile"); !built) {
    // The folder goes with the interrupted command, unless it is the user's.
    if (interrupted() && options.keep.empty())
      return was_interrupted("the build", "start the same command again: with --keep FOLDER what is compiled is kept");
    return built.problems();
  }
  return measure(options, pipeline, folder.path());
}

JsonObject profile_json(const ir::Profile& profile, const std::string& output) {
  size_t signatures = 0;
  for (size_t i = 0; i < profile.operators.size(); ++i)
    signatures += i == 0 || profile.operators[i].signature != profile.operators[i - 1].signature;
  JsonObject object;
  object.add("output", output).add("signatures", signatures).add("measurements", profile.operators.size());
  object.add("threads", profile.threads);
  if (!profile.links.empty()) {
    object.add("latency_seconds", profile.links.front().latency.count);
    object.add("bytes_per_second", profile.links.front().bandwidth.count);
  }
  const ir::RuntimeCosts& costs = profile.runtime;
  object.add("step_seconds", costs.step.count).add("action_seconds", costs.action.count);
  object.add("message_seconds", costs.message.count).add("message_seconds_per_byte", costs.message_byte);
  object.add("update_seconds_per_tensor", costs.update_tensor.count);
  return object.add("update_seconds_per_byte", costs.update_byte).add("add_seconds_per_byte", costs.add_byte);
}

void print_profile_summary(const ir::Profile& profile, const std::string& output) {
  std::cout << profile.operators.size() << " measurements of operators in " << Terminal::encode_text(output).str()
            << "\n";
  if (!profile.links.empty())
    std::cout << "between two processes: latency " << human_seconds(profile.links.front().latency.count) << ", "
              << human_bytes(profile.links.front().bandwidth.count) << " per second\n";
  const ir::RuntimeCosts& costs = profile.runtime;
  std::cout << "beside the operators: " << human_seconds(costs.step.count) << " a step, "
            << human_seconds(costs.action.count) << " an action, " << human_seconds(costs.message.count)
            << " each end of a message\n";
}

}  // namespace

int run_profile(const Options& options) {
  catch_interrupts();
  if (const Status output = check_output(options); !output)
    return report_problems(options, "profile", output.problems());
  const Result<ir::Profile> profile = make_profile(options);
  if (!profile) return report_problems(options, "profile", profile.problems());
  const Status written = files::write_profile(options.output, *profile);
  if (!written) return report_problems(options, "profile", written.problems());
  if (options.json) print_json("profile", profile_json(*profile, options.output), {});
  else print_profile_summary(*profile, options.output);
  return wire::kExitOk;
}

}  // namespace graphpipe::driver
