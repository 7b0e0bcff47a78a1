#pragma once
// The weights of a generated folder that lie in data files as the model has them, beside those of weights.safetensors.
// Written beside the programs as `weights.txt`, where there are any; a part lies in the folder's file
// weights/NUMBER.bin, and no other path can be written. Text form, one part per line:
//
//   graphpipe-weights 1
//   part <file number> <byte offset> float32 [4096,4096] h.0.attention.q.weight

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
#include "wire/safetensors.h"

namespace graphpipe::wire {

inline constexpr std::string_view kWeightPartsFile = "weights.txt";
inline constexpr std::string_view kWeightPartsHeader = "graphpipe-weights 1";

struct WeightPart {
  /// Of weight_data_file.
  int64_t file = 0;
  /// Its length is what type and shape say; the elements lie at a multiple of their width.
  TensorEntry tensor;
  bool operator==(const WeightPart&) const = default;
};

/// "weights/0.bin".
std::string weight_data_file(int64_t number);
/// Whether a path of a manifest is one that holds weights, or says where they lie.
bool holds_weights(std::string_view path);

std::string print_weight_parts(std::span<const WeightPart> parts);
/// Absent where the text is not of this form, or names a tensor twice. Nothing is known of the files' sizes.
std::optional<std::vector<WeightPart>> parse_weight_parts(std::string_view text);

/// The parts of a folder, none where it has no such table; all of them lie within their files.
/// Errors: kMalformedFile, kUnreadableFile.
Result<std::vector<WeightPart>> read_weight_parts(const std::string& folder);

}  // namespace graphpipe::wire
