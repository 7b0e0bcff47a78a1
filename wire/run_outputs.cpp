#include "wire/run_outputs.h"

#include <filesystem>
#include <fstream>
#include <iterator>

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
  std::ifstream file(folder / kManifestFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Manifest manifest;
  std::string problem;
  if (!parse_manifest(text, manifest, problem)) return false;  // such a folder does not run
  for (const ManifestEntry& entry : manifest.files)
    if (is_same(path, folder / entry.path)) return true;
  return false;
}

bool is_data(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error))
    if (entry.path().extension() == ".npy" && is_same(path, entry.path())) return true;
  return false;
}

}  // namespace

std::string kept_file(const std::string& path, const std::string& folder, const std::string& data) {
  if (path.empty()) return "";
  const fs::path place = folder;
  if (is_same(path, place / kWeightsFile)) return "the folder's initial weights";
  if (is_same(path, place / "plan.json")) return "the folder's plan";
  if (is_same(path, place / kManifestFile)) return "the folder's manifest";
  if (is_below(path, place / "build")) return "the folder's programs";
  if (is_listed(path, place)) return "a file that the folder's programs are made from";
  if (!data.empty() && is_data(path, data)) return "training data";
  return "";
}

}  // namespace graphpipe::wire
