#include "driver/output_folder.h"

#include <filesystem>
#include <set>

#include "driver/digest.h"
#include "driver/parameter_bytes.h"
#include "files/text_file.h"
#include "wire/manifest.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSourceBytes = int64_t{1} << 30;

Diagnostic disk_problem(const std::string& path, const std::error_code& error) {
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(path),
                    .message = "the file system refused: " + error.message(),
                    .hint = "check permissions and free space"};
}

// What the last generation listed and this one does not: its sources would confuse a reader, not the build.
Status remove_stale(const std::string& folder, const std::set<std::string>& current) {
  const std::string path = folder + "/" + std::string(wire::kManifestFile);
  if (!fs::exists(path)) return Ok{};
  GP_TRY(const std::string text, files::read_file(path, kMostSourceBytes));
  wire::Manifest old;
  std::string problem;
  if (!wire::parse_manifest(text, old, problem)) {
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(path),
                      .message = problem,
                      .hint = "the folder was not written by graphpipe; choose another"};
  }
  for (const wire::ManifestEntry& entry : old.files) {
    if (current.contains(entry.path)) continue;
    std::error_code error;
    fs::remove(folder + "/" + entry.path, error);
    if (error) return disk_problem(entry.path, error);
  }
  return Ok{};
}

Status make_folders(const std::string& folder, const std::vector<codegen::SourceFile>& sources) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return disk_problem(folder, error);
  if (!fs::exists(folder + "/" + std::string(wire::kManifestFile)) && !fs::is_empty(folder, error) && !error &&
      !fs::exists(folder + "/" + kPlanFile)) {
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText(folder),
                      .message = "the folder is not empty and was not written by graphpipe",
                      .hint = "choose another folder, or empty this one"};
  }
  for (const codegen::SourceFile& source : sources) {
    fs::create_directories(fs::path(folder + "/" + source.path).parent_path(), error);
    if (error) return disk_problem(source.path, error);
  }
  return Ok{};
}

}  // namespace

Status write_if_changed(const std::string& path, std::string_view content) {
  if (fs::exists(path)) {
    const Result<std::string> old = files::read_file(path, kMostSourceBytes);
    if (old.ok() && *old == content) return Ok{};
  }
  return files::write_file(path, content);
}

Status write_folder(const std::string& folder, const std::vector<codegen::SourceFile>& sources, const ir::Graph& graph,
                    const std::string& plan_digest) {
  GP_TRY_VOID(make_folders(folder, sources));
  std::set<std::string> paths{std::string(wire::kWeightsFile)};
  for (const codegen::SourceFile& source : sources) paths.insert(source.path);
  GP_TRY_VOID(remove_stale(folder, paths));
  wire::Manifest manifest{.plan = plan_digest, .files = {}};
  for (const codegen::SourceFile& source : sources) {
    GP_TRY_VOID(write_if_changed(folder + "/" + source.path, source.text));
    manifest.files.push_back({.path = source.path,
                              .size = static_cast<int64_t>(source.text.size()),
                              .sha256 = sha256_of_text(source.text)});
  }
  const std::string weights = folder + "/" + std::string(wire::kWeightsFile);
  GP_TRY_VOID(write_weights(weights, graph));
  GP_TRY(const std::string digest, sha256_of_file(weights));
  std::error_code error;
  manifest.files.push_back({.path = std::string(wire::kWeightsFile),
                            .size = static_cast<int64_t>(fs::file_size(weights, error)),
                            .sha256 = digest});
  if (error) return disk_problem(weights, error);
  return write_if_changed(folder + "/" + std::string(wire::kManifestFile), wire::print_manifest(manifest));
}

}  // namespace graphpipe::driver
