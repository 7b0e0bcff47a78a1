#pragma once
// A scan over JSON text that refuses what lenient readers let pass: too large, too deep, a name twice, NaN and
// Infinity, numbers that do not fit, invalid UTF-8, text after the end. Every other reader of JSON runs after it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace graphpipe::files {

struct JsonLimits {
  int64_t max_bytes = int64_t{64} << 20;
  int deepest = 64;
};

enum class JsonKind : uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };

/// One value, seen when it starts.
struct JsonEvent {
  /// Member names and list positions from the root, such as {"stages", "[2]", "devices"}.
  const std::vector<std::string>& path;
  JsonKind kind;
  /// For numbers; 1 and 0 for true and false.
  double number = 0;
  /// For strings.
  std::string_view string;
};

/// Returns what is wrong with the value; empty where nothing is.
using JsonCheck = std::function<std::string(const JsonEvent&)>;

/// Reports problems with the path of the field they are in, at most 20 of them.
/// Errors: kMalformedFile, kLimitExceeded.
Status scan_json(std::string_view text, const JsonLimits& limits = {}, const JsonCheck& check = nullptr);

/// "stages[2].devices", safe to print.
std::string path_text(const std::vector<std::string>& path);

}  // namespace graphpipe::files
