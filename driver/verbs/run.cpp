// graphpipe run: train on this host, one process per device.

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "driver/cli/commands.h"
#include "driver/cli/config_file.h"
#include "driver/cli/usage.h"
#include "driver/launch/check_run.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "driver/launch/unpack_data.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/report.h"
#include "driver/verbs/run_paced.h"
#include "files/plan.h"
#include "files/text_file.h"
#include "support/descriptor.h"
#include "support/output_file.h"
#include "wire/check_data.h"
#include "wire/checkpoint.h"
#include "wire/exit_codes.h"
#include "wire/run_outputs.h"

namespace graphpipe::driver {
namespace {

// Checked before the training, not after it.
Status check_writable(const std::string& flag, const std::string& path) {
  const Status status = check_output_path(path);
  if (status.ok()) return Ok{};
  Diagnostic problem = status.problems().front();
  problem.origin = ModelText(flag + " " + path);
  return problem;
}

// Refuses to overwrite a file without which the folder could not run again, or a file that the run reads.
Status check_spared(const wire::WrittenFile& file, const Options& options) {
  std::string kept = wire::kept_file(file.path, options.input, options.run);
  if (is_same_file(file.path, options.config)) kept = "the file of --config";
  if (kept.empty()) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(text(file.flag, " ", file.path)),
                    .message = text("this file is ", kept),
                    .hint = "save under another name, such as trained.safetensors"};
}

// Each file that the run writes must be writable, and must not overwrite another one or a file that is read.
Status check_written_files(const Options& options) {
  namespace fs = std::filesystem;
  std::vector<wire::WrittenFile> files = wire::written_files(options.run);
  if (!options.write_config.empty()) files.push_back({"--write-config", options.write_config});
  std::map<fs::path, const char*> seen;
  for (const wire::WrittenFile& file : files) {
    GP_TRY_VOID(check_spared(file, options));
    GP_TRY_VOID(check_writable(file.flag, file.path));
    const auto [other, is_new] = seen.emplace(fs::weakly_canonical(fs::absolute(file.path)), file.flag);
    if (!is_new) {
      return Diagnostic{.code = Code::kUsage,
                        .origin = ModelText(file.path),
                        .message = text(file.flag, " names the same file as ", other->second),
                        .hint = "name a file for each"};
    }
  }
  return Ok{};
}

bool holds_checkpoint(const std::string& folder) {
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
    if (wire::step_of_checkpoint(entry.path().filename().string())) return true;
  return false;
}

// A new file of this run alone, below $TMPDIR.
Result<std::string> make_steps_file() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string path = std::filesystem::absolute(folder / "graphpipe-steps-XXXXXX.csv").string();
  const Descriptor file(error ? -1 : ::mkstemps(path.data(), 4));
  if (file) return path;
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(error ? "$TMPDIR" : folder.string()),
                    .message = text("the steps of a run that may start again cannot be kept there: ",
                                    error ? error.message() : std::strerror(errno)),
                    .hint = "let TMPDIR name a folder that can be written to"};
}

struct RemovedAtEnd {
  ~RemovedAtEnd() {
    if (!path.empty()) ::unlink(path.c_str());
  }
  std::string path;
};

// Starts the run again if a device died or stalled: that is not the fault of the model or its data, so the next try may
// succeed. The run resumes from its checkpoint folder; without a checkpoint there, it starts from the beginning.
Result<RunOutcome> launch_again(const Options& options, int device_count, wire::RunOptions run) {
  // Rank 0, which has the result, may be the one that dies.
  if (options.json && options.restarts > 0) {
    GP_TRY(run.launch.kept_steps, make_steps_file());
  }
  const RemovedAtEnd steps{run.launch.kept_steps};
  for (int left = options.restarts;; --left) {
    GP_TRY(RunOutcome outcome, launch_devices(options.input, device_count, run, true));
    if (outcome.exit_code != wire::kExitPeerFailed || left == 0 || interrupted()) return outcome;
    print_problems("run", outcome.problems);
    std::cerr << "graphpipe: the run starts again from its last checkpoint; restarts left: " << left - 1 << "\n";
    // A run that began from another folder's checkpoint does so again until it has one of its own.
    if (run.checkpoint.resume.empty() || holds_checkpoint(run.checkpoint.folder))
      run.checkpoint.resume = run.checkpoint.folder;
  }
}

// An asynchronous step updates weights before its last loss is known, so it cannot be skipped any more.
Status check_skipping(const Options& options, const RunFacts& facts) {
  if (!options.run.watch.skips() || facts.synchronous) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText("--on-anomaly skip"),
                    .message = "the folder's schedule is asynchronous: it updates weights inside the step",
                    .hint = "take --on-anomaly end, or compile with a synchronous policy"};
}

// A run that only computes outputs takes every sample of its files once, where its flags do not say otherwise.
wire::RunOptions with_every_sample_once(const Options& options, const RunFacts& facts) {
  wire::RunOptions run = options.run;
  if (facts.trains || run.data.folder.empty() || wire::is_test_data_folder(run.data.folder)) return run;
  if (!options.given.contains("--steps") && !options.given.contains("--epochs")) run.data.epochs = 1;
  if (run.data.epochs > 0 && !options.given.contains("--last-batch")) run.data.last_batch = wire::LastBatch::kTrain;
  return run;
}

Result<RunOutcome> run_plan_folder(const Options& options) {
  GP_TRY_VOID(check_written_files(options));
  GP_TRY(const ir::Plan plan, files::read_plan(plan_file_of(options.input)));
  if (!plan.schedule) {
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(options.input),
                      .message = "the folder's plan has no schedule, so it is not known how many programs there are",
                      .hint = "run `graphpipe compile` again"};
  }
  if (!options.run.output.save_outputs.empty() && !is_forward_only(*plan.schedule)) {
    return Diagnostic{
        .code = Code::kUsage,
        .origin = ModelText("--save-outputs"),
        .message = "the folder's plan trains, and a step's outputs are not kept",
        .hint =
            "take --eval-data and --save-eval-outputs, or compile with --policy inference and run that with --weights"};
  }
  GP_TRY(const RunFacts facts, run_facts(options.input, plan, options.run));
  GP_TRY_VOID(check_run_flags(options, facts));
  GP_TRY_VOID(check_skipping(options, facts));
  wire::RunOptions read = with_every_sample_once(options, facts);
  GP_TRY(const HeldData held, unpack_data(options.input, read, options.quiet));
  wire::RunOptions run = for_programs(read, plan, options.json);
  run.output.progress = !options.quiet;
  const Diagnostics found = check_run_files(options.input, read);
  if (has_error(found)) return found;
  GP_TRY(run, in_steps(options.input, run, read.data));
  report_run_notes(options, found);
  const bool is_random = read.data.folder.empty() && read.data.feed.empty();
  if (facts.trains && is_random && (!read.output.save.empty() || facts.takes_checkpoints))
    report_run_notes(options,
                     {{.code = Code::kUsage,
                       .severity = Severity::kWarning,
                       .message = "the run has no --data: it trains on random numbers, and keeps what it learns",
                       .hint = "name the samples with --data"}});
  if (!options.write_config.empty()) {
    GP_TRY_VOID(files::write_file(options.write_config, config_text(options.run)));
  }
  if (facts.takes_checkpoints) catch_checkpoint_requests();
  return launch_again(options, static_cast<int>(plan.schedule->programs.size()), std::move(run));
}

}  // namespace

int run_run(const Options& options) {
  catch_interrupts();
  if (options.pace) return run_paced(options);
  for (const char* flag : {"--pace-scale", "--pace-bytes", "--trusted-root"})
    if (options.given.contains(flag))
      return report_problems(options, "run",
                             {usage(flag, "the run computes and is not paced", "leave it out, or add --pace")});
  const Result<RunOutcome> outcome = run_plan_folder(options);
  if (!outcome) return report_problems(options, "run", outcome.problems());
  print_problems("run", outcome->problems);
  // The programs print the report themselves. If they ended before that, a report of how they ended takes its place.
  if (outcome->exit_code != wire::kExitOk && options.json && outcome->report.empty())
    print_json("run", {}, failed_run(*outcome, "the run", options.input), false);
  return outcome->exit_code;
}

}  // namespace graphpipe::driver
