#include "driver/launch/output_folder.h"

#include <filesystem>
#include <set>

#include "driver/launch/digest.h"
#include "driver/launch/weight_files.h"
#include "driver/pipeline/pipeline.h"
#include "files/plan.h"
#include "files/text_file.h"
#include "wire/manifest.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSourceBytes = int64_t{1} << 30;

}  // namespace

Diagnostic disk_problem(const std::string& path, const std::error_code& error) {
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(path),
                    .message = "the file system refused: " + error.message(),
                    .hint = "check permissions and free space"};
}

namespace {

// What the last generation wrote; empty where there was none.
Result<wire::Manifest> read_manifest(const std::string& folder) {
  wire::Manifest manifest;
  const std::string path = folder + "/" + std::string(wire::kManifestFile);
  if (!fs::exists(path)) return manifest;
  GP_TRY(const std::string text, files::read_file(path, kMaxSourceBytes));
  std::string problem;
  if (!wire::parse_manifest(text, manifest, problem)) {
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(path),
                      .message = problem,
                      .hint = "the folder was not written by graphpipe; choose another"};
  }
  return manifest;
}

std::set<std::string> paths_in(const wire::Manifest& manifest) {
  std::set<std::string> paths;
  for (const wire::ManifestEntry& entry : manifest.files) paths.insert(entry.path);
  return paths;
}

Result<std::set<std::string>> listed_files(const std::string& folder) {
  GP_TRY(const wire::Manifest manifest, read_manifest(folder));
  return paths_in(manifest);
}

Diagnostic not_generated(const std::string& path, std::string_view what) {
  return Diagnostic{.code = Code::kMalformedFile,
                    .origin = ModelText(path),
                    .message = text("this file ", what, ", and would be compiled into the programs"),
                    .hint = "remove it and run `graphpipe generate` again; to build sources of your own, use cmake"};
}

// Whether CMake reads or compiles a file of this name.
bool is_source(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".cpp" || extension == ".h" || extension == ".cu" || extension == ".cmake" ||
         path.filename() == "CMakeLists.txt";
}

// Sources that the manifest does not list. build/ holds what was built and verify/ what `verify` compares with: neither
// is compiled into this folder's programs.
Diagnostics added_sources(const std::string& folder, const std::set<std::string>& listed) {
  Diagnostics problems;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    const std::string path = fs::relative(entry->path(), folder, error).generic_string();
    if (path == "build" || path == "verify") entry.disable_recursion_pending();
    else if (is_source(entry->path()) && !listed.contains(path))
      problems.push_back(not_generated(entry->path().string(), "was not generated"));
  }
  if (error) problems.push_back(disk_problem(folder, error));
  return problems;
}

// Refuses symbolic links on the path from the folder to a file of ours, and in place of the file: they may lead out of
// the folder.
Status check_no_links(const std::string& folder, const std::string& path) {
  fs::path place = folder;
  for (const fs::path& part : fs::path(path)) {
    place /= part;
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(place, error))) continue;
    return Diagnostic{.code = Code::kUnsafePath,
                      .origin = ModelText(place.string()),
                      .message = "a symbolic link stands where the folder's own files are written",
                      .hint = "remove it, or choose another folder"};
  }
  return Ok{};
}

// Removes what the last generation listed and this one does not: stale sources would confuse a reader, though not the
// build.
Status remove_stale(const std::string& folder, const std::set<std::string>& listed,
                    const std::set<std::string>& current) {
  for (const std::string& path : listed) {
    if (current.contains(path)) continue;
    GP_TRY_VOID(check_no_links(folder, path));
    std::error_code error;
    fs::remove(folder + "/" + path, error);
    if (error) return disk_problem(text(folder, "/", path), error);
  }
  return Ok{};
}

// The part that names the generator and what it read: the first line, and the second too if the first only opens a
// brace.
std::string_view beginning(std::string_view text) {
  size_t end = text.find('\n');
  if (end == 1 && text[0] == '{') end = text.find('\n', 2);
  return text.substr(0, end);
}

// Plans that users write name their model by its place: one that names the folder's link is ours. Another may be the
// plan to generate itself.
Status check_replaceable_plan(const std::string& path, const std::string& text) {
  const Result<ir::Plan> old = files::read_plan(path), plan = files::parse_plan(text);
  const bool is_ours = old.ok() && old->spec.path.raw() == wire::kModelLink;
  if (is_ours || (old.ok() && plan.ok() && plan_digest(*old) == plan_digest(*plan))) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(path),
                    .message = old.ok() ? "a plan stands here that is not the one to generate, and would be overwritten"
                                        : "the file was not written by graphpipe and would be overwritten",
                    .hint = "move it away, or choose another folder"};
}

// A file that no manifest lists is ours if it begins as ours do: an interrupted generation left it.
Status check_replaceable(const std::string& folder, const codegen::SourceFile& source) {
  const std::string path = folder + "/" + source.path;
  if (!fs::exists(path)) return Ok{};
  if (source.path == wire::kPlanFile) return check_replaceable_plan(path, source.text);
  const Result<std::string> old = files::read_file(path, kMaxSourceBytes);
  if (old.ok() && beginning(*old) == beginning(source.text)) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(path),
                    .message = "the file was not written by graphpipe and would be overwritten",
                    .hint = "choose another folder"};
}

// The same for the weights, which begin with a size and not with our name: a file that no compilation wrote may hold
// trained weights. Data files of the model do not say who put them there, but the table of their parts is written
// before them.
Status check_replaceable_weights(const std::string& folder, const std::set<std::string>& listed,
                                 const SharedWeights& shared) {
  const std::string table(wire::kWeightPartsFile);
  GP_TRY_VOID(check_no_links(folder, table));
  if (!listed.contains(table))
    GP_TRY_VOID(check_replaceable(folder, {.path = table, .text = wire::print_weight_parts({})}));
  for (const std::string& name : weight_paths(shared)) {
    GP_TRY_VOID(check_no_links(folder, name));
    const std::string path = folder + "/" + name;
    if (listed.contains(name) || !fs::exists(path)) continue;
    if (name == wire::kWeightsFile ? are_written_weights(path) : fs::exists(folder + "/" + table)) continue;
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText(path),
                      .message = "the weights were not written by a compilation and would be overwritten",
                      .hint = "move them away, or choose another folder"};
  }
  return Ok{};
}

// Whether the folder holds more than folders, which are all that remains if the disk was too full for the first file.
Result<bool> holds_files(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder)) return false;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error))
    if (!entry->is_directory() || entry->is_symlink()) return true;
  if (error) return disk_problem(folder, error);
  return false;
}

Status check_ours(const std::string& folder, const std::set<std::string>& listed) {
  GP_TRY(const bool has_files, holds_files(folder));
  if (!has_files || !listed.empty() || files::read_plan(text(folder, "/", wire::kPlanFile)).ok()) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .origin = ModelText(folder),
                    .message = "the folder is not empty and was not written by graphpipe",
                    .hint = "choose another folder, or empty this one"};
}

Status make_folders(const std::string& folder, const std::vector<codegen::SourceFile>& sources,
                    const SharedWeights& shared, const std::set<std::string>& listed) {
  GP_TRY_VOID(check_ours(folder, listed));
  for (const codegen::SourceFile& source : sources) {
    GP_TRY_VOID(check_no_links(folder, source.path));
    if (listed.contains(source.path)) continue;
    GP_TRY_VOID(check_replaceable(folder, source));
  }
  GP_TRY_VOID(check_replaceable_weights(folder, listed, shared));
  for (const codegen::SourceFile& source : sources) {
    std::error_code error;
    fs::create_directories(fs::path(folder + "/" + source.path).parent_path(), error);
    if (error) return disk_problem(text(folder, "/", source.path), error);
  }
  return Ok{};
}

}  // namespace

Status write_if_changed(const std::string& path, std::string_view content) {
  if (fs::exists(path)) {
    const Result<std::string> old = files::read_file(path, kMaxSourceBytes);
    if (old.ok() && *old == content) return Ok{};
  }
  return files::write_file(path, content);
}

Result<FolderNotes> write_folder(const std::string& folder, const std::vector<codegen::SourceFile>& sources,
                                 const ir::Graph& graph, const WeightOrigin& origin, const std::string& plan_digest) {
  GP_TRY(const std::set<std::string> listed, listed_files(folder));
  GP_TRY(const SharedWeights shared, find_shared_weights(graph, origin));
  GP_TRY_VOID(make_folders(folder, sources, shared, listed));
  const std::vector<std::string> weights = weight_paths(shared);
  std::set<std::string> paths(weights.begin(), weights.end());
  for (const codegen::SourceFile& source : sources) paths.insert(source.path);
  GP_TRY_VOID(remove_stale(folder, listed, paths));
  wire::Manifest manifest{.plan = plan_digest, .files = {}};
  for (const codegen::SourceFile& source : sources) {
    GP_TRY_VOID(write_if_changed(folder + "/" + source.path, source.text));
    manifest.files.push_back(
        {.path = source.path, .size = static_cast<int64_t>(source.text.size()), .sha256 = sha256_of_text(source.text)});
  }
  GP_TRY(FolderNotes written, write_weight_files(folder, graph, origin, shared, manifest));
  GP_TRY_VOID(write_if_changed(folder + "/" + std::string(wire::kManifestFile), wire::print_manifest(manifest)));
  return written;
}

Status check_sources(const std::string& folder) {
  GP_TRY(const wire::Manifest manifest, read_manifest(folder));
  Diagnostics problems = added_sources(folder, paths_in(manifest));
  for (const wire::ManifestEntry& entry : manifest.files) {
    if (wire::holds_weights(entry.path)) continue;
    const std::string path = folder + "/" + entry.path;
    GP_TRY(const std::string digest, sha256_of_file(path));
    if (digest != entry.sha256) problems.push_back(not_generated(path, "is not as it was generated"));
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::driver
