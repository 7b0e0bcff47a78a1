#include "runtime/io/folder.h"

#include <filesystem>

#include "runtime/error.h"
#include "runtime/io/sha256.h"
#include "support/mapped_file.h"
#include "wire/manifest.h"

namespace graphpipe::runtime {
namespace {

constexpr int kLevels = 3;

void check_file(const std::string& folder, const wire::ManifestEntry& entry, bool by_content) {
  const MappedFile file = value_or_throw(MappedFile::open(folder + "/" + entry.path));
  if (file.bytes().size() != static_cast<size_t>(entry.size) ||
      (by_content && sha256_hex(file.bytes()) != entry.sha256))
    fail(Code::kMalformedFile, quoted(ModelText(entry.path)) + " is not the file that the manifest names",
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
    if (check == FolderCheck::kAllFiles || entry.path == wire::kWeightsFile)
      check_file(folder, entry, check != FolderCheck::kSizeOfWeights);
}

std::string weights_digest(const std::string& folder) {
  for (const wire::ManifestEntry& entry : read_manifest(folder).files)
    if (entry.path == wire::kWeightsFile) return entry.sha256;
  fail(Code::kMalformedFile, "the manifest in " + quoted(ModelText(folder)) + " names no weights",
       "generate the folder again");
}

}  // namespace graphpipe::runtime
