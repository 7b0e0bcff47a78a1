#include "frontend/parameter_rules.h"

#include <array>
#include <sstream>

#include "support/name_pattern.h"

namespace graphpipe::frontend {

bool is_parameter_name(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kWords = {
      "weight", "bias", "gamma", "beta", "running_mean", "running_var", "in_proj_weight", "in_proj_bias", "kernel"};
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.find_first_of("/:") != std::string_view::npos) return false;
  const std::string_view last = name.substr(dot + 1);
  for (std::string_view word : kWords)
    if (last == word) return true;
  return last.starts_with("weight_") || last.starts_with("bias_");
}

Result<ParameterRules> ParameterRules::parse(const std::vector<ModelText>& freeze, std::string_view content) {
  ParameterRules rules;
  for (const ModelText& pattern : freeze) rules.rules_.push_back({pattern.raw(), Action::kFreeze, true});
  Diagnostics problems;
  std::istringstream lines{std::string(content)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words{line.substr(0, line.find('#'))};
    std::string pattern, action, rest;
    words >> pattern >> action;
    if (action == "->" || action == "=") words >> action;
    if (pattern.empty()) continue;
    const bool known = action == "train" || action == "freeze" || action == "tie" || action == "split";
    if (!known || words >> rest) {
      problems.push_back({.code = Code::kBadParameter,
                          .origin = ModelText(pattern),
                          .message = text("line ", number, " of the parameter file is not PATTERN and one action"),
                          .hint = "write 'PATTERN train', 'PATTERN freeze', 'PATTERN tie' or 'PATTERN split'"});
      continue;
    }
    const Action kind = action == "train"    ? Action::kTrain
                        : action == "freeze" ? Action::kFreeze
                        : action == "tie"    ? Action::kTie
                                             : Action::kSplit;
    rules.rules_.push_back({pattern, kind, false});
  }
  if (!problems.empty()) return problems;
  return rules;
}

std::optional<size_t> ParameterRules::last_rule(std::string_view name, Action one, Action other) const {
  std::optional<size_t> found;
  for (size_t i = 0; i < rules_.size(); ++i)
    if ((rules_[i].action == one || rules_[i].action == other) && matches(rules_[i].pattern, name)) {
      used_.insert(i);
      found = i;
    }
  return found;
}

std::optional<bool> ParameterRules::trains(std::string_view name) const {
  const std::optional<size_t> rule = last_rule(name, Action::kTrain, Action::kFreeze);
  if (!rule) return std::nullopt;
  return rules_[*rule].action == Action::kTrain;
}

std::optional<bool> ParameterRules::tied(std::string_view name) const {
  const std::optional<size_t> rule = last_rule(name, Action::kTie, Action::kSplit);
  if (!rule) return std::nullopt;
  return rules_[*rule].action == Action::kTie;
}

std::string ParameterRules::pattern_for(std::string_view name) const {
  const std::optional<size_t> rule = last_rule(name, Action::kTrain, Action::kFreeze);
  return rule ? quoted(ModelText(rules_[*rule].pattern)) : "";
}

Diagnostics ParameterRules::unused() const {
  Diagnostics problems;
  for (size_t i = 0; i < rules_.size(); ++i)
    if (used_.count(i) == 0)
      problems.push_back({.code = Code::kBadParameter,
                          .origin = ModelText(rules_[i].pattern),
                          .message = rules_[i].is_option ? "the freeze pattern names no parameter"
                                                         : "the pattern of the parameter file names no parameter",
                          .hint = "run `graphpipe inspect` to see the names"});
  return problems;
}

}  // namespace graphpipe::frontend
