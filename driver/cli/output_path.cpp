#include "driver/cli/output_path.h"

#include <filesystem>
#include <vector>

#include "driver/cli/usage.h"
#include "support/output_file.h"
#include "wire/manifest.h"
#include "wire/run_outputs.h"

namespace graphpipe::driver {
namespace {

// The path if it is a folder, or the compiled folder whose plan it is; empty if the command reads something else.
std::string compiled_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const fs::path folder = fs::absolute(path, error).parent_path();
  const bool is_its_plan =
      fs::path(path).filename() == wire::kPlanFile && fs::exists(folder / wire::kManifestFile, error);
  return is_its_plan ? folder.string() : "";
}

}  // namespace

Status check_output(const Options& options, std::span<const std::string> also_read) {
  if (options.output.empty()) return Ok{};
  if (options.output == "-") return usage("-o -", "nothing is written to stdout that way", "name a file, or ./-");
  std::vector<std::string> reads = {options.model.model,  options.model.parameters, options.input,
                                    options.plan.cluster, options.plan.profile,     options.schedule.dag,
                                    options.executed,     options.measured,         options.run.data.weights,
                                    options.config,       options.plan.order.file};
  reads.insert(reads.end(), also_read.begin(), also_read.end());
  for (const std::string& read : reads)
    if (is_same_file(options.output, read))
      return usage("-o " + options.output, "this file is read by the same command", "name another file to write");
  std::vector<std::string> folders = options.inputs;
  folders.push_back(options.input);
  const std::string given = compiled_folder(options.plan.plan);
  if (!given.empty() && !is_same_file(options.output, text(given, "/", wire::kPlanFile))) folders.push_back(given);
  for (const std::string& folder : folders)
    if (const std::string kept = wire::kept_file(options.output, compiled_folder(folder), options.run); !kept.empty())
      return usage("-o " + options.output, "this file is " + kept, "name another file to write");
  return check_output_path(options.output);
}

}  // namespace graphpipe::driver
