#include "wire/run_outputs.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "wire/checkpoint.h"
#include "wire/data_file.h"
#include "wire/manifest.h"

namespace graphpipe::wire {
namespace {

namespace fs = std::filesystem;

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(fs::absolute(path), error);
  return error ? path : result;
}

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) || resolved(a) == resolved(b);
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path rest = resolved(path).lexically_relative(resolved(folder));
  return !rest.empty() && *rest.begin() != ".." && *rest.begin() != ".";
}

bool is_listed(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / kManifestFile, error)) return false;  // a pipe would never end
  std::ifstream file(folder / kManifestFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Manifest manifest;
  std::string problem;
  if (!parse_manifest(text, manifest, problem)) return false;  // such a folder does not run
  for (const ManifestEntry& entry : manifest.files)
    if (is_same(path, folder / entry.path)) return true;
  return false;
}

// A new file with the name of one would be read by the next run.
bool is_data(const fs::path& path, const fs::path& data) {
  std::error_code error;
  if (!fs::is_directory(data, error)) return is_same(path, data);
  if (has_data_ending(path) && is_below(path, data)) return true;
  if (!fs::exists(path, error)) return false;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(data, error))
    if (has_data_ending(entry.path()) && is_same(path, entry.path())) return true;
  return false;
}

bool is_checkpoint(const fs::path& path, const fs::path& folder) {
  if (is_same(path, folder / kCheckpointsMark)) return true;
  return is_below(path, folder) &&
         step_of_checkpoint(resolved(path).lexically_relative(resolved(folder)).begin()->string());
}

std::string kept_of_folder(const fs::path& path, const fs::path& folder) {
  if (is_same(path, folder / kWeightsFile)) return "the folder's initial weights";
  if (is_same(path, folder / kPlanFile)) return "the folder's plan";
  if (is_same(path, folder / kManifestFile)) return "the folder's manifest";
  if (is_same(path, folder / kModelLink)) return "the model that the folder was made from";
  if (is_same(path, folder / kProfileLink)) return "the profile that the folder's plan was made with";
  if (is_below(path, folder / "build")) return "the folder's programs";
  if (is_listed(path, folder)) return "a file that the folder's programs are made from";
  return "";
}

}  // namespace

std::vector<WrittenFile> written_files(const RunOptions& options) {
  std::vector<WrittenFile> files = {{"--save", options.output.save},
                                    {"--save-ema", options.output.save_average},
                                    {"--save-gradients", options.output.save_gradients},
                                    {"--save-outputs", options.output.save_outputs},
                                    {"--save-eval-outputs", options.output.save_eval_outputs},
                                    {"--trace", options.output.trace},
                                    {"--log", options.watch.log},
                                    {"--metrics", options.watch.metrics}};
  std::erase_if(files, [](const WrittenFile& file) { return file.path.empty(); });
  return files;
}

std::string kept_file(const std::string& path, const std::string& folder, const RunOptions& options) {
  if (std::string kept = folder.empty() ? "" : kept_of_folder(path, folder); !kept.empty()) return kept;
  for (const std::string& data : {options.data.folder, options.data.eval_folder})
    if (!data.empty() && is_data(path, data)) return "training data";
  if (!options.data.weights.empty() && is_same(path, options.data.weights)) return "what the run starts from";
  const std::string& rates = options.optimizer.schedule_file;
  if (!rates.empty() && is_same(path, rates)) return "the file of --lr-file";
  for (const std::string& checkpoints : {options.checkpoint.folder, options.checkpoint.resume})
    if (!checkpoints.empty() && is_checkpoint(path, checkpoints)) return "a part of the run's checkpoints";
  return "";
}

}  // namespace graphpipe::wire
