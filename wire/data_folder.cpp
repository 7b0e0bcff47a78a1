#include "wire/data_folder.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "wire/data_file.h"
#include "wire/npy_header.h"

namespace graphpipe::wire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".npy";

Diagnostic bad_folder(const std::string& file, std::string message, std::string hint) {
  return {.code = Code::kBadData, .origin = ModelText(file), .message = std::move(message), .hint = std::move(hint)};
}

std::string stem_of(const std::string& name) {
  const std::string file = data_file_name(name);
  return file.substr(0, file.size() - kEnding.size());
}

// Names of the entries of a folder that end in .npy, those that are numbers first and in their order; none where it
// cannot be read.
std::vector<std::string> npy_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kEnding) names.push_back(entry.path().filename().string());
  std::ranges::sort(names, {}, [](const std::string& name) {
    uint64_t number = 0;
    const bool is_number = read_number(std::string_view(name).substr(0, name.size() - kEnding.size()), number);
    return std::tuple(!is_number, is_number ? number : 0, name);
  });
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

}  // namespace

NpyFolder::NpyFolder(std::string folder, const DataTable& table) : folder_(std::move(folder)) {
  for (const DataEntry& entry : table.entries) stems_.insert(stem_of(entry.name));
}

// STEM.0.npy, STEM.1.npy, ...: numbers may have leading zeros, and none is left out.
Result<std::vector<std::string>> NpyFolder::numbered_parts(const std::string& stem) const {
  std::vector<std::pair<uint64_t, std::string>> parts;
  for (const std::string& file : npy_files(folder_)) {
    const std::string own = file.substr(0, file.size() - kEnding.size());
    uint64_t number = 0;
    if (!own.starts_with(stem + ".") || stems_.contains(own)) continue;
    if (read_number(std::string_view(own).substr(stem.size() + 1), number)) parts.emplace_back(number, file);
  }
  std::ranges::sort(parts);
  std::vector<std::string> files;
  for (const auto& [number, file] : parts) {
    if (number != files.size())
      return bad_folder(
          file,
          text("the parts of ", quoted(ModelText(stem)), " are numbered from 0 without a gap, and ",
               number < files.size() ? "this number is there twice" : text("number ", files.size(), " is missing")),
          "put the missing part there, or number the parts again");
    files.push_back(file);
  }
  return files;
}

Result<std::vector<std::string>> NpyFolder::files_of(const DataEntry& entry) const {
  const std::string stem = stem_of(entry.name), whole = stem + std::string(kEnding);
  GP_TRY(const std::vector<std::string> parts, numbered_parts(stem));
  std::vector<std::string> inside;
  if (!stem.empty() && stem != "." && stem != ".." && is_folder(folder_ + "/" + stem))
    for (const std::string& file : npy_files(folder_ + "/" + stem)) inside.push_back(stem + "/" + file);
  std::error_code error;
  const bool has_whole = fs::exists(folder_ + "/" + whole, error);
  if (has_whole + !parts.empty() + !inside.empty() > 1)
    return bad_folder(whole,
                      text("the data of ", quoted(ModelText(stem)),
                           " are there in two forms: one file, numbered "
                           "parts or a folder"),
                      "remove all but one of them");
  if (!parts.empty()) return parts;
  if (!inside.empty()) return inside;
  if (has_whole) return std::vector<std::string>{whole};
  return bad_folder(whole, "the data folder has no such file",
                    "write one .npy file per model input and label, first axis samples");
}

Result<std::vector<DataArray>> NpyFolder::open(const DataEntry& entry) {
  GP_TRY(const std::vector<std::string> names, files_of(entry));
  if (names.size() > 1 && !entry.has_samples())
    return bad_folder(names.front(), "the input has no axis of samples, so its data have no parts",
                      "write the whole tensor as one file");
  std::vector<DataArray> parts;
  for (const std::string& name : names) {
    auto found = files_.find(name);
    if (found == files_.end()) {
      GP_TRY(MappedFile file, MappedFile::open(folder_ + "/" + name));
      found = files_.emplace(name, std::move(file)).first;
    }
    const std::span<const std::byte> bytes = found->second.bytes();
    GP_TRY(const NpyHeader header, read_npy_header(bytes, name));
    parts.push_back(
        {.type = header.type, .dims = header.dims, .elements = bytes.subspan(header.data_offset), .file = name});
  }
  return parts;
}

}  // namespace graphpipe::wire
