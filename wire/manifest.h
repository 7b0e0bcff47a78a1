#pragma once
// The list of the files of a generated folder with their sizes and SHA-256 digests. Written beside the programs as
// `manifest.txt`; every program checks it when it starts, so that a stage is never run with the weights or the tables
// of another plan. Text form, one file per line:
//
//   graphpipe-manifest 1
//   plan <64 hex digits>
//   file <64 hex digits> <size in bytes> <path relative to the manifest, may hold spaces>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::wire {

inline constexpr std::string_view kManifestFile = "manifest.txt";
inline constexpr std::string_view kWeightsFile = "weights.safetensors";
inline constexpr std::string_view kPlanFile = "plan.json";
/// Links to what the folder was made from: the model, and the profile that the plan was priced with.
inline constexpr std::string_view kModelLink = "model.onnx";
inline constexpr std::string_view kProfileLink = "profile.json";

struct ManifestEntry {
  std::string path;
  int64_t size = 0;
  std::string sha256;
  bool operator==(const ManifestEntry&) const = default;
};

struct Manifest {
  /// PlanTable::plan_digest.
  std::string plan;
  std::vector<ManifestEntry> files;
  bool operator==(const Manifest&) const = default;
};

/// "file <64 hex digits> <size in bytes> <path>" and a newline.
std::string print_manifest_line(const ManifestEntry& entry);
/// Reads what follows the word "file". Returns false where the digest, the size or the path is malformed.
bool parse_manifest_line(std::string_view line, ManifestEntry& entry);
/// Whether the text is 64 lower-case hex digits.
bool is_digest(std::string_view word);

std::string print_manifest(const Manifest& manifest);

/// Reads the text form. Refuses other versions, malformed digests and sizes, duplicate paths, and paths that are
/// absolute or leave the folder. On failure returns false and says why in `problem`.
bool parse_manifest(std::string_view text, Manifest& manifest, std::string& problem);

}  // namespace graphpipe::wire
