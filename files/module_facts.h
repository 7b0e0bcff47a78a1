#pragma once
// What a PyTorch module knows and its ONNX file does not say: MODEL.onnx.module.json, which the Python package writes
// beside the model that it exports (docs/files.md).

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
#include "support/text.h"

namespace graphpipe::files {

struct PaddingRow {
  ModelText parameter;
  int64_t row = 0;
  bool operator==(const PaddingRow&) const = default;
};

struct ModuleFacts {
  /// SHA-256 of the model file that they are about.
  std::string model_digest;
  /// Parameters that the module does not train.
  std::vector<ModelText> frozen;
  /// Rows of tables that look-ups do not train.
  std::vector<PaddingRow> padding_rows;
  /// Names of one tensor each; a file holds it under one of them.
  std::vector<std::vector<ModelText>> ties;
  /// Parameters and running statistics that the file lacks, because the module computes nothing of them.
  std::vector<ModelText> unused;
  /// By the names of nodes, the path of the innermost module, such as "vision.encoder.layers.3".
  std::map<std::string, ModelText> module_of_node;
  bool operator==(const ModuleFacts&) const = default;
};

/// Errors: kMalformedFile, also for names that a parameter file could not hold (blanks, '*', '?', '#'); kLimitExceeded.
Result<ModuleFacts> parse_module_facts(std::string_view text);

/// The facts beside a model file; nothing where there is no such file. Errors: those of parse_module_facts;
/// kUnreadableFile.
Result<std::optional<ModuleFacts>> module_facts_beside(const std::string& model);

/// The lines of a parameter file that say the same (frontend/parameter_rules.h).
std::string parameter_lines(const ModuleFacts& facts);

}  // namespace graphpipe::files
