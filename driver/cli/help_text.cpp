#include "driver/cli/help_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "support/text.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kNameColumn = 26, kLineLength = 118, kLongestShownChoice = 20;
/// The upper limit of kOneOrMore in flags.cpp, which is too large to be worth showing.
constexpr std::string_view kNoUpperLimit = " - 1073741824]";

/// "INT:INT in [1 - 64]" is the kind INT and the rule "INT in [1 - 64]".
struct ValueType {
  std::string kind, rule;
};

ValueType type_of(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

bool is_switch(const CLI::Option& option) { return option.get_expected_max() == 0; }

/// "a|b" of "{a,b}" and of "a|b"; empty where the rule is no list of words.
std::string choices_of(std::string rule) {
  if (rule.starts_with("{")) {
    std::ranges::replace(rule, ',', '|');
    return rule.substr(1, rule.size() - 2);
  }
  return rule.find('|') == std::string::npos ? "" : rule;
}

/// "1 to 64" of "INT in [1 - 64]"; empty where there is no limit to tell.
std::string range_of(const std::string& rule) {
  const size_t open = rule.find(" in [");
  if (open == std::string::npos || rule.ends_with(kNoUpperLimit)) return "";
  std::string range = rule.substr(open + 5, rule.size() - open - 6);
  if (const size_t dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
  return range;
}

/// Lines of at most `length` characters, broken at blanks and at the bars between choices.
std::string wrapped(const std::string& words, size_t length) {
  std::string out;
  size_t start = 0;
  while (words.size() - start > length) {
    size_t end = words.find_last_of(" |", start + length - 1);
    if (end == std::string::npos || end < start) break;
    out += words.substr(start, end + 1 - start);
    if (out.back() == ' ') out.pop_back();
    out += '\n';
    start = end + 1;
  }
  return out + words.substr(start);
}

/// What a flag takes, as a word: "N", "FILE", "on|off"; empty for switches.
std::string value_of(const CLI::Option& option) {
  if (is_switch(option)) return "";
  const ValueType type = type_of(option);
  const std::string choices = choices_of(type.rule);
  if (!choices.empty()) return choices.size() <= kLongestShownChoice ? choices : "NAME";
  const bool is_whole = type.kind == "INT" || type.kind == "UINT";
  return is_whole ? "N" : type.kind == "FLOAT" ? "X" : type.kind;
}

/// The flag's description, with its limits, its default, and the choices that value_of did not list.
std::string described(const CLI::Option& option) {
  const ValueType type = type_of(option);
  const std::string choices = choices_of(type.rule), range = range_of(type.rule);
  std::string out = option.get_description(), aside;
  if (!range.empty()) aside = range;
  if (const std::string shown = option.get_default_str(); !shown.empty())
    aside += text(aside.empty() ? "" : "; ", "default ", shown);
  if (option.get_required() && option.nonpositional()) aside += text(aside.empty() ? "" : "; ", "required");
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size)
    aside += text(aside.empty() ? "" : "; ", "may be repeated");
  if (!aside.empty()) out += text(" (", aside, ")");
  if (choices.size() > kLongestShownChoice) out += text(": ", choices);
  return out;
}

/// The names, and their description from column kNameColumn on.
std::string help_line(const ShownFlag& flag) {
  std::string names = flag.argument;
  for (const std::string& name : flag.short_names) names += (names.empty() ? "-" : ",-") + name;
  for (const std::string& name : flag.long_names) names += (names.empty() ? "--" : ",--") + name;
  if (!flag.value.empty() && flag.argument.empty()) names += " " + flag.value;
  std::string line = "  " + names, words = wrapped(flag.help, kLineLength - kNameColumn) + "\n";
  if (line.size() >= kNameColumn) line += "\n" + std::string(kNameColumn, ' ');
  line.resize(std::max(line.size(), kNameColumn), ' ');
  for (size_t at = words.find('\n'); at + 1 < words.size(); at = words.find('\n', at + kNameColumn))
    words.insert(at + 1, kNameColumn, ' ');
  return line + words;
}

}  // namespace

void add_flags_with_help(CLI::App& app, const CommandEntry& verb, Options& options) {
  app.set_help_flag("-h,--help", "Print this help message and exit");  // some copies of CLI11 leave it to the program
  verb.add_flags(app, options);
  for (CLI::Option* option : app.get_options()) {
    if (is_switch(*option) || !option->get_default_str().empty()) continue;
    option->capture_default_str();
    const std::string shown = option->get_default_str();
    if (shown == "0" || shown == "-1" || shown == "[]" || shown == "{}" || shown == "\"\"") option->default_str("");
  }
}

std::string help_text(const CLI::App& app, const CommandEntry& verb) {
  std::string usage = text("Usage: graphpipe ", verb.name, " [OPTIONS]"), arguments;
  std::vector<std::pair<std::string, std::string>> groups;
  for (const ShownFlag& flag : shown_flags(app)) {
    if (!flag.argument.empty()) {
      usage += flag.required ? " " + flag.argument : " [" + flag.argument + "]";
      arguments += help_line(flag);
      continue;
    }
    const std::string heading = flag.group.empty() ? "Options" : flag.group;
    auto group = std::ranges::find(groups, heading, [](const auto& each) { return each.first; });
    if (group == groups.end()) group = groups.insert(group, {heading, ""});
    group->second += help_line(flag);
  }
  std::string out = text(verb.summary, "\n", usage, "\n");
  if (!arguments.empty()) out += "\nPositionals:\n" + arguments;
  for (const auto& [heading, lines] : groups) out += text("\n", heading, ":\n", lines);
  return out + text("\nExample:\n  ", verb.example, "\n");
}

std::vector<ShownFlag> shown_flags(const CLI::App& app) {
  std::vector<ShownFlag> flags;
  for (const CLI::Option* option : app.get_options()) {
    ShownFlag flag{.short_names = option->get_snames(),
                   .long_names = option->get_lnames(),
                   .argument = option->nonpositional() ? "" : option->get_name(),
                   .value = value_of(*option),
                   .choices = {},
                   .help = described(*option),
                   .group = option->get_group() == app.get_help_ptr()->get_group() ? "" : option->get_group(),
                   .required = option->get_required()};
    std::string choices = choices_of(type_of(*option).rule);
    // Words in capitals are placeholders, not choices: "FILE.jsonl|FILE.csv".
    if (choices.empty() && std::ranges::none_of(flag.value, [](char c) { return c >= 'A' && c <= 'Z'; }))
      choices = choices_of(flag.value);
    for (const std::string_view word : split(choices, "|"))
      if (!word.empty()) flag.choices.emplace_back(word);
    flags.push_back(std::move(flag));
  }
  return flags;
}

}  // namespace graphpipe::driver
