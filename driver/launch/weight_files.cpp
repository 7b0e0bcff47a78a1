#include "driver/launch/weight_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "driver/launch/digest.h"
#include "driver/launch/output_folder.h"
#include "driver/report/report.h"
#include "frontend/external_data.h"
#include "support/descriptor.h"
#include "support/output_file.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

// The range of a file that holds the parameter as it is; null where programs cannot read it from there.
const ir::FileRange* readable_range(const ir::Graph& graph, ir::ParamId id, const WeightOrigin& origin) {
  const auto* range = std::get_if<ir::FileRange>(&graph.param(id).data);
  if (range == nullptr || range->path == origin.model || range->length == 0 || range->is_transposed) return nullptr;
  const wire::ElementTypeInfo& type = *wire::find_element_type(graph.value(graph.param(id).value).type.dtype);
  return type.packed == 1 && range->offset % type.bytes == 0 ? range : nullptr;
}

// For each file, the ranges that hold parameters: offset and length.
using Ranges = std::map<std::string, std::map<int64_t, int64_t>>;

Result<std::set<std::string>> files_to_share(const Ranges& ranges_of) {
  std::set<std::string> files;
  for (const auto& [path, ranges] : ranges_of) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error)
      return Diagnostic{.code = Code::kUnreadableFile,
                        .origin = ModelText(path),
                        .message = "the weights cannot be read: " + error.message(),
                        .hint = "check that the file is the one that the plan was made from"};
    int64_t used = 0;
    for (const auto& [offset, length] : ranges) used += length;
    if (used >= static_cast<int64_t>(size / 2)) files.insert(path);
  }
  return files;
}

// Gives the open file a hard link at `path`. Returns why that cannot be done; empty where the link stands.
std::string link_file_of(int file, const struct stat& info, const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0 && there.st_dev == info.st_dev && there.st_ino == info.st_ino) return "";
  // Imports of the model complain about hard links to files of other users (frontend/external_data.h).
  if (info.st_uid != geteuid()) return "the file belongs to another user";
  const std::string made = path + ".new", opened = text("/proc/self/fd/", file);
  ::unlink(made.c_str());
  if (::linkat(AT_FDCWD, opened.c_str(), AT_FDCWD, made.c_str(), AT_SYMLINK_FOLLOW) == 0 &&
      ::rename(made.c_str(), path.c_str()) == 0)
    return "";
  const std::string why = std::strerror(errno);
  ::unlink(made.c_str());
  return why;
}

/// Of a copy as large as this a note tells how to do without.
constexpr int64_t kLargeCopy = int64_t{4} << 30;

Status copy_file(const ir::FileRange& whole, const WeightOrigin& origin, const std::string& path) {
  GP_TRY(OutputFile copy, OutputFile::create(path));
  GP_TRY_VOID(send_file_range(whole, origin, [&](std::string_view bytes) { return copy.write(bytes); }));
  return copy.commit();
}

// Adds the file to the manifest with the digest that the import has computed, so that a file which has changed since is
// refused by the programs.
Status take_data_file(const std::string& folder, const std::string& source, const std::string& name,
                      const WeightOrigin& origin, wire::Manifest& manifest, Diagnostics& notes) {
  GP_TRY(const int number, frontend::open_weight_file(source, origin.model, origin.trusted_root));
  const Descriptor file(number);
  struct stat info {};
  GP_CHECK(fstat(number, &info) == 0);
  const std::string path = folder + "/" + name;
  const bool links = origin.link_data_files;
  const std::string obstacle = links ? link_file_of(number, info, path) : "";
  const auto note = [&](const std::string& what, const char* hint) {
    notes.push_back({.code = Code::kEnvironment,
                     .severity = Severity::kNote,
                     .origin = ModelText(source),
                     .message = text("the folder has a copy of this data file", what),
                     .hint = hint});
  };
  if (!links || !obstacle.empty()) GP_TRY_VOID(copy_file({source, 0, info.st_size}, origin, path));
  if (!obstacle.empty())
    note(text(": ", obstacle), "a folder of yours on the file system of the model shares it, without a copy");
  else if (!links && info.st_size >= kLargeCopy)
    note(text(", of ", human_bytes(static_cast<double>(info.st_size))), "--link-weights shares it, without a copy");
  manifest.files.push_back({.path = name, .size = info.st_size, .sha256 = origin.digests.at(source)});
  return Ok{};
}

Status write_table(const std::string& folder, const SharedWeights& shared, wire::Manifest& manifest) {
  const std::string name(wire::kWeightPartsFile), path = folder + "/" + name;
  const std::string table = wire::print_weight_parts(shared.parts);
  GP_TRY_VOID(write_if_changed(path, table));
  manifest.files.push_back({.path = name, .size = static_cast<int64_t>(table.size()), .sha256 = sha256_of_text(table)});
  return Ok{};
}

}  // namespace

Result<SharedWeights> find_shared_weights(const ir::Graph& graph, const WeightOrigin& origin) {
  Ranges ranges;
  for (const ir::ParamId id : graph.param_ids())
    if (const auto* range = readable_range(graph, id, origin)) ranges[range->path][range->offset] = range->length;
  GP_TRY(const std::set<std::string> wanted, files_to_share(ranges));
  SharedWeights shared;
  std::map<std::string, int64_t> numbers;
  for (const ir::ParamId id : graph.param_ids()) {
    const auto* range = readable_range(graph, id, origin);
    if (range == nullptr || !wanted.contains(range->path)) continue;
    const auto [number, is_new] = numbers.emplace(range->path, shared.files.size());
    if (is_new) shared.files.push_back(range->path);
    const files::TensorToWrite tensor = tensor_of_parameter(graph, id);
    shared.parts.push_back({.file = number->second,
                            .tensor = {.name = tensor.name,
                                       .dtype = tensor.dtype,
                                       .shape = tensor.shape,
                                       .offset = range->offset,
                                       .length = range->length}});
    shared.params.insert(id);
  }
  return shared;
}

std::vector<std::string> weight_paths(const SharedWeights& shared) {
  std::vector<std::string> paths{std::string(wire::kWeightsFile)};
  if (!shared.files.empty()) paths.emplace_back(wire::kWeightPartsFile);
  for (size_t i = 0; i < shared.files.size(); ++i) paths.push_back(wire::weight_data_file(static_cast<int64_t>(i)));
  return paths;
}

Result<FolderNotes> write_weight_files(const std::string& folder, const ir::Graph& graph, const WeightOrigin& origin,
                                       const SharedWeights& shared, wire::Manifest& manifest) {
  // A run may save all of them in one file, so one file must be able to hold them.
  std::vector<files::TensorToWrite> tensors;
  for (const ir::ParamId id : graph.param_ids()) tensors.push_back(tensor_of_parameter(graph, id));
  GP_TRY_VOID(files::check_tensors(tensors));
  FolderNotes written;
  std::error_code error;
  // The table comes first: it marks the files that an interrupted generation leaves as ours.
  if (shared.files.empty()) {
    fs::remove(folder + "/" + std::string(wire::kWeightPartsFile), error);
  } else {
    GP_TRY_VOID(write_table(folder, shared, manifest));
    fs::create_directories(fs::path(folder + "/" + wire::weight_data_file(0)).parent_path(), error);
  }
  if (error) return disk_problem(folder, error);
  for (size_t i = 0; i < shared.files.size(); ++i)
    GP_TRY_VOID(take_data_file(folder, shared.files[i], wire::weight_data_file(static_cast<int64_t>(i)), origin,
                               manifest, written.notes));
  const std::string name(wire::kWeightsFile), weights = folder + "/" + name;
  GP_TRY_VOID(write_weights(weights, graph, origin, shared.params));
  GP_TRY(const std::string digest, sha256_of_file(weights));
  const auto size = fs::file_size(weights, error);
  if (error) return disk_problem(weights, error);
  manifest.files.push_back({.path = name, .size = static_cast<int64_t>(size), .sha256 = digest});
  return written;
}

}  // namespace graphpipe::driver
