#pragma once
// The PyTorch call that a node was exported from. The dynamo exporter records it with the node; some calls mean more
// than the operators that it writes for them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/model.h"

namespace graphpipe::frontend {

struct ExportedCall {
  /// The name of its result, "embedding_1"; empty where the text does not say it.
  std::string result;
  /// "aten.embedding.default".
  std::string target;
  /// Positional, as the exporter prints them: "%p_weight", "0", "mean".
  std::vector<std::string> arguments;
  /// Keyword arguments, "include_self: False".
  std::vector<std::string> keywords;
  /// All values that it takes, also those in lists: "%p_weight".
  std::vector<std::string> values;
  /// Empty if the call has fewer arguments.
  std::string_view argument(size_t i) const {
    return i < arguments.size() ? std::string_view(arguments[i]) : std::string_view();
  }
};

/// Reads "%e : [...] = call_function[target=torch.ops.aten.embedding.default](args = (%w, %ids, 0), kwargs = {})".
/// Nullopt for text of another form.
std::optional<ExportedCall> parse_exported_call(std::string_view text);

/// Whether the node is a detach, which blocks the gradient.
bool is_detached(const OnnxNode& node);

/// Whether a node's metadata may be such a call.
bool may_be_exported_call(std::string_view metadata);

/// The keys of two further entries of a node's metadata.
inline constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes", kStackTrace = "pkg.torch.onnx.stack_trace";

/// What is kept of them: the module whose code makes the call; of the trace its last line with the place, behind the
/// lines of callers that name two members or more, such as "return self.block(x, self.gain)". Empty for other keys, and
/// for text of another form.
std::string place_of_call(std::string_view key, std::string_view text);

/// The two parts of what is kept of a trace: the lines of callers, one each, and the last line with its place.
std::string_view callers_in(std::string_view kept);
std::string_view code_in(std::string_view kept);

}  // namespace graphpipe::frontend
