#pragma once
// What the user specifies about parameters: freeze patterns and the parameter file.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/result.h"
#include "support/text.h"

namespace graphpipe::frontend {

/// Whether a name looks like an entry of a state_dict: a dotted path whose last component is a typical parameter name
/// of layers, such as "encoder.0.norm.weight".
bool is_parameter_name(std::string_view name);

class ParameterRules {
 public:
  /// Lines "PATTERN train|freeze|tie|split|unused", "PATTERN padding ROW" and "NAME tie OTHER"; also "PATTERN ->
  /// train". Errors: kBadParameter with the line's number.
  static Result<ParameterRules> parse(const std::vector<ModelText>& freeze, std::string_view text);

  /// The decision of the last rule that matches the parameter; its pattern is marked as used.
  std::optional<bool> trains(std::string_view name) const;
  std::optional<bool> tied(std::string_view name) const;
  /// Whether the module has it, but takes no part of it into what it computes, so that a file lacks it.
  bool leaves_out(std::string_view name) const;
  /// The two names of each line "NAME tie OTHER".
  std::vector<std::pair<std::string, std::string>> ties() const;
  /// The row of a table that look-ups do not train (nn.Embedding's padding_idx).
  std::optional<int64_t> padding_row(std::string_view name) const;
  /// The pattern that decided, for the report.
  std::string pattern_for(std::string_view name) const;
  /// Errors for patterns that have matched nothing so far, except those that tie, and those of what files lack.
  Diagnostics unused() const;
  /// Errors for lines "NAME unused", without wildcards, of these parameters: the file computes something from them.
  Diagnostics contradicted_by(const std::set<std::string>& parameters) const;

 private:
  enum class Action : uint8_t { kTrain, kFreeze, kTie, kSplit, kPadding, kUnused };
  struct Rule {
    std::string pattern;
    Action action;
    bool is_option;          // from --freeze
    int64_t row = 0;         // of kPadding
    std::string other = {};  // of kTie: a name, or none
  };
  static std::optional<Rule> rule_of(std::string pattern, const std::vector<std::string>& words);
  std::optional<size_t> last_rule(std::string_view name, Action one, Action other) const;

  std::vector<Rule> rules_;
  mutable std::set<size_t> used_;
};

}  // namespace graphpipe::frontend
