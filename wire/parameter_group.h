#pragma once
// Numbers of an optimizer that hold for some parameters only, chosen by their names.

#include <optional>
#include <string>
#include <string_view>

namespace graphpipe::wire {

struct ParameterGroup {
  /// '*' stands for any characters, '?' for one.
  std::string pattern;
  /// Absent: those of all parameters.
  std::optional<double> learning_rate, weight_decay;
  bool operator==(const ParameterGroup&) const = default;
};

/// "PATTERN:lr=0.1,weight-decay=0"; the last colon ends the pattern. Empty where the text is no such group.
std::optional<ParameterGroup> parse_parameter_group(std::string_view text);
/// The text that parses back into the group.
std::string parameter_group_text(const ParameterGroup& group);

}  // namespace graphpipe::wire
