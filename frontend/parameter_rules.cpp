#include "frontend/parameter_rules.h"

#include <array>
#include <functional>
#include <map>
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

std::optional<ParameterRules::Rule> ParameterRules::rule_of(std::string pattern,
                                                            const std::vector<std::string>& words) {
  static const std::map<std::string, Action, std::less<>> kActions = {{"train", Action::kTrain},
                                                                      {"freeze", Action::kFreeze},
                                                                      {"tie", Action::kTie},
                                                                      {"split", Action::kSplit},
                                                                      {"unused", Action::kUnused}};
  if (words.size() == 2 && words[0] == "padding") {
    Rule rule{std::move(pattern), Action::kPadding, false};
    return read_number(words[1], rule.row) && rule.row >= 0 ? std::optional(std::move(rule)) : std::nullopt;
  }
  if (words.size() == 2 && words[0] == "tie") {
    // Names, both: which of them the file holds is not known yet.
    if ((pattern + words[1]).find_first_of("*?") != std::string::npos) return std::nullopt;
    return Rule{.pattern = std::move(pattern), .action = Action::kTie, .is_option = false, .other = words[1]};
  }
  const auto action = words.size() == 1 ? kActions.find(words[0]) : kActions.end();
  if (action == kActions.end()) return std::nullopt;
  return Rule{std::move(pattern), action->second, false};
}

Result<ParameterRules> ParameterRules::parse(const std::vector<ModelText>& freeze, std::string_view content) {
  ParameterRules rules;
  for (const ModelText& pattern : freeze) rules.rules_.push_back({pattern.raw(), Action::kFreeze, true});
  Diagnostics problems;
  std::istringstream lines{std::string(content)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream parts{line.substr(0, line.find('#'))};
    std::string pattern;
    if (!(parts >> pattern)) continue;
    std::vector<std::string> words;
    for (std::string word; parts >> word;)
      if (!words.empty() || (word != "->" && word != "=")) words.push_back(word);
    if (std::optional<Rule> rule = rule_of(pattern, words)) {
      rules.rules_.push_back(std::move(*rule));
      continue;
    }
    problems.push_back({.code = Code::kBadParameter,
                        .origin = ModelText(pattern),
                        .message = text("line ", number, " of the parameter file is not PATTERN and one action"),
                        .hint = "write 'PATTERN train', 'PATTERN freeze', 'PATTERN tie', 'NAME tie NAME', 'PATTERN "
                                "split', 'PATTERN unused' or 'PATTERN padding ROW'"});
  }
  if (!problems.empty()) return problems;
  return rules;
}

std::optional<size_t> ParameterRules::last_rule(std::string_view name, Action one, Action other) const {
  std::optional<size_t> found;
  for (size_t i = 0; i < rules_.size(); ++i)
    if ((rules_[i].action == one || rules_[i].action == other) &&
        (matches(rules_[i].pattern, name) || (!rules_[i].other.empty() && rules_[i].other == name))) {
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

bool ParameterRules::leaves_out(std::string_view name) const {
  return last_rule(name, Action::kUnused, Action::kUnused).has_value();
}

std::vector<std::pair<std::string, std::string>> ParameterRules::ties() const {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Rule& rule : rules_)
    if (!rule.other.empty()) pairs.emplace_back(rule.pattern, rule.other);
  return pairs;
}

std::optional<int64_t> ParameterRules::padding_row(std::string_view name) const {
  const std::optional<size_t> rule = last_rule(name, Action::kPadding, Action::kPadding);
  if (!rule) return std::nullopt;
  return rules_[*rule].row;
}

std::string ParameterRules::pattern_for(std::string_view name) const {
  const std::optional<size_t> rule = last_rule(name, Action::kTrain, Action::kFreeze);
  return rule ? quoted(ModelText(rules_[*rule].pattern)) : "";
}

Diagnostics ParameterRules::unused() const {
  Diagnostics problems;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    // Tied parameters are stored in the file under only one of their names, and unused ones not at all.
    if (used_.count(i) != 0 || rule.action == Action::kTie || rule.action == Action::kUnused) continue;
    std::string message = rule.is_option ? "the freeze pattern names no parameter"
                                         : "the pattern of the parameter file names no parameter";
    if (rule.action == Action::kSplit) message += " that the file merges with another";
    problems.push_back({.code = Code::kBadParameter,
                        .origin = ModelText(rule.pattern),
                        .message = message,
                        .hint = "run `graphpipe inspect` to see the names"});
  }
  return problems;
}

Diagnostics ParameterRules::contradicted_by(const std::set<std::string>& parameters) const {
  Diagnostics problems;
  for (const Rule& rule : rules_)
    if (rule.action == Action::kUnused && parameters.contains(rule.pattern))
      problems.push_back({.code = Code::kBadParameter,
                          .origin = ModelText(rule.pattern),
                          .message = "the parameter file says that the module does not use this, but the file computes "
                                     "something from it",
                          .hint = "remove the line, or correct its name: run `graphpipe inspect` to see the names"});
  return problems;
}

}  // namespace graphpipe::frontend
