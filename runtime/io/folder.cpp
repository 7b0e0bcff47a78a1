#include "runtime/io/folder.h"

#include <filesystem>

#include "runtime/error.h"
#include "runtime/io/sha256.h"
#include "support/mapped_file.h"
#include "wire/manifest.h"
#include "wire/weight_parts.h"

namespace graphpipe::runtime {
namespace {

constexpr int kLevels = 3;

void check_file(const std::string& folder, const wire::ManifestEntry& entry, bool by_content) {
  const std::string path = folder + "/" + entry.path;
  const MappedFile file = value_or_throw(MappedFile::open(path));
  if (file.bytes().size() == static_cast<size_t>(entry.size) &&
      (!by_content || sha256_hex(file.bytes()) == entry.sha256))
    return;
  std::error_code error;
  const bool is_shared = std::filesystem::hard_link_count(path, error) > 1;
  fail(Code::kMalformedFile,
       quoted(ModelText(entry.path)) + " is not the file that the manifest names" +
           (is_shared ? ": it is one with the model's data file, which was written over" : ""),
       "generate and build the folder again, or put the original file back");
}

wire::Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + std::string(wire::kManifestFile);
  const MappedFile file = value_or_throw(MappedFile::open(path));
  wire::Manifest manifest;
  std::string problem;
  if (!wire::parse_manifest(file.text(), manifest, problem))
    fail(Code::kMalformedFile, quoted(ModelText(path)) + ": " + problem, "generate the folder again");
  return manifest;
}

}  // namespace

std::string find_folder(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; !error && level <= kLevels; ++level, folder = folder.parent_path())
    if (std::filesystem::exists(folder / wire::kManifestFile, error)) return folder.string();
  fail(Code::kUnreadableFile, "no manifest.txt beside this program or in the folders above it",
       "pass the generated folder with --folder");
}

void check_manifest(const std::string& folder, const std::string& plan_digest, FolderCheck check) {
  const wire::Manifest manifest = read_manifest(folder);
  if (manifest.plan != plan_digest)
    fail(Code::kMalformedFile, "the manifest in " + quoted(ModelText(folder)) + " is of another plan than this program",
         "build the folder again");
  for (const wire::ManifestEntry& entry : manifest.files)
    if (check == FolderCheck::kAllFiles || wire::holds_weights(entry.path))
      check_file(folder, entry, check != FolderCheck::kSizeOfWeights);
}

std::string weights_digest(const std::string& folder) {
  std::vector<std::string> digests;
  std::string joined;
  for (const wire::ManifestEntry& entry : read_manifest(folder).files)
    if (wire::holds_weights(entry.path)) joined += digests.emplace_back(entry.sha256);
  if (digests.size() > 1) return sha256_hex(std::as_bytes(std::span(joined)));
  if (digests.size() == 1) return digests.front();
  fail(Code::kMalformedFile, "the manifest in " + quoted(ModelText(folder)) + " names no weights",
       "generate the folder again");
}

}  // namespace graphpipe::runtime
