// graphpipe run: train on this host, one process per device.

#include <unistd.h>

#include <filesystem>
#include <map>
#include <utility>

#include "driver/cli/commands.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/report.h"
#include "files/plan.h"
#include "wire/exit_codes.h"
#include "wire/manifest.h"

namespace graphpipe::driver {
namespace {

// Found out before the training, not after it.
Status check_writable(const std::string& flag, const std::string& path) {
  if (path.empty()) return Ok{};
  const std::string folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) == 0 && !std::filesystem::is_directory(path)) return Ok{};
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(flag + " " + path),
                    .message = "no file can be written there",
                    .hint = "name a file in a folder that exists and may be written"};
}

// The folder's initial weights are part of what its manifest vouches for: overwritten, no program would start again.
Status check_save_path(const std::string& folder, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path own = fs::weakly_canonical(fs::absolute(folder) / wire::kWeightsFile, error);
  if (path.empty() || error || fs::weakly_canonical(fs::absolute(path), error) != own) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(path),
                    .message = "this file holds the folder's initial weights",
                    .hint = "save under another name, such as trained.safetensors"};
}

// Each file that the run writes: writable, and none over another or over what the folder needs.
Status check_written_files(const Options& options) {
  namespace fs = std::filesystem;
  const std::pair<const char*, const std::string*> files[] = {{"--save", &options.run.save},
                                                              {"--save-gradients", &options.run.save_gradients},
                                                              {"--save-outputs", &options.run.save_outputs},
                                                              {"--trace", &options.run.trace}};
  std::map<fs::path, const char*> seen;
  for (const auto& [flag, path] : files) {
    if (path->empty()) continue;
    GP_TRY_VOID(check_save_path(options.input, *path));
    GP_TRY_VOID(check_writable(flag, *path));
    const auto [other, is_new] = seen.emplace(fs::weakly_canonical(fs::absolute(*path)), flag);
    if (!is_new) {
      return Diagnostic{.code = Code::kUsage,
                        .origin = ModelText(*path),
                        .message = text(flag, " names the same file as ", other->second),
                        .hint = "name a file for each"};
    }
  }
  return Ok{};
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
  if (!options.run.save_outputs.empty() && !is_forward_only(*plan.schedule)) {
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--save-outputs"),
                      .message = "the folder's plan trains, and such programs do not keep the model's outputs",
                      .hint = "compile the model with --policy inference, and run that with --weights"};
  }
  GP_TRY(wire::RunOptions run, to_run_options(options.run, plan, options.json));
  run.progress = !options.quiet;
  return launch_devices(options.input, static_cast<int>(plan.schedule->programs.size()), run, true);
}

}  // namespace

int run_run(const Options& options) {
  catch_interrupts();
  const Result<RunOutcome> outcome = run_plan_folder(options);
  if (!outcome) return report_problems(options, "run", outcome.problems());
  // The programs' own report is the result; where they ended before it, what is known of the end stands in for it.
  if (outcome->exit_code != wire::kExitOk && options.json && outcome->report.empty()) {
    const Diagnostic ended{.code = interrupted() ? Code::kInterrupted : Code::kPeerFailed,
                           .origin = ModelText(options.input),
                           .message = text("the run ended with exit code ", outcome->exit_code),
                           .hint = "the messages on stderr say which device, action and micro-batch"};
    print_json("run", {}, {ended}, false);
  }
  return outcome->exit_code;
}

}  // namespace graphpipe::driver
