#include "driver/cli/config_file.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>

#include "driver/cli/suggestion.h"
#include "driver/cli/toml_file.h"

namespace graphpipe::driver {
namespace {

// A value as the command line would have it; empty where a flag has no such value.
std::optional<std::string> word_of(const TomlNode& node) {
  if (node.is(TomlKind::kText)) return node.text;
  if (node.is(TomlKind::kInteger)) return std::to_string(node.integer);
  if (node.is(TomlKind::kReal)) return wire::write_value(node.real);
  if (node.list.empty()) return std::nullopt;
  std::string words;
  for (const TomlNode& each : node.list) {
    const std::optional<std::string> word = each.is_number() ? word_of(each) : std::nullopt;
    if (!word) return std::nullopt;
    words += (words.empty() ? "" : ",") + *word;
  }
  return words;
}

// A table in the list of groups, in the form of the flag: its pattern, then its numbers.
std::optional<std::string> group_word(const TomlNode& node) {
  if (!node.is(TomlKind::kTable)) return word_of(node);
  const TomlNode* pattern = node.find("pattern");
  if (pattern == nullptr || !pattern->is(TomlKind::kText)) return std::nullopt;
  std::string numbers;
  for (const auto& [key, value] : node.table) {
    if (key == "pattern") continue;
    const std::optional<std::string> number = value.is_number() ? word_of(value) : std::nullopt;
    if (!number) return std::nullopt;
    numbers += (numbers.empty() ? "" : ",") + key + "=" + *number;
  }
  return *word_of(*pattern) + ":" + numbers;
}

// One word for each time that the flag would be typed; empty where the value does not fit it.
std::vector<std::string> words_of(const wire::RunFlag& flag, const TomlNode& node) {
  std::vector<std::string> words;
  if (!flag.repeats) {
    if (std::optional<std::string> word = word_of(node)) words.push_back(*std::move(word));
    return words;
  }
  const std::span<const TomlNode> all = node.is(TomlKind::kList) ? node.list : std::span(&node, 1);
  for (const TomlNode& each : all) {
    std::optional<std::string> word = group_word(each);
    if (!word) return {};
    words.push_back(*std::move(word));
  }
  return words;
}

Diagnostic wrong_line(const std::string& path, const TomlNode& node, const std::string& message, std::string hint) {
  return {.code = Code::kMalformedFile,
          .origin = ModelText(path),
          .message = text("line ", node.line, ": ", message),
          .hint = std::move(hint)};
}

Diagnostic unknown_flag(const std::string& path, const TomlNode& node, const std::string& key,
                        const std::vector<std::string>& known) {
  return wrong_line(path, node, text("there is no flag ", quoted(ModelText("--" + key)), suggestion(key, known)),
                    "`--help` lists the flags; keys are their names without the dashes");
}

// The words that would be typed for a flag of any verb; nothing where the value does not fit it.
std::optional<std::vector<std::string>> typed_words(const KnownFlag& flag, const TomlNode& node) {
  std::vector<std::string> words;
  if (flag.is_switch) {
    if (!node.is(TomlKind::kBool)) return std::nullopt;
    if (node.integer != 0) words.push_back(flag.name);
    return words;
  }
  const std::span<const TomlNode> each = node.is(TomlKind::kList) ? node.list : std::span(&node, 1);
  for (const TomlNode& one : each) {
    if (!one.is(TomlKind::kText) && !one.is_number()) return std::nullopt;
    words.push_back(flag.name + "=" + *word_of(one));
  }
  return words;
}

// Visits each key of the file, with its place among the known ones. Returns the problems of all keys.
template <typename Visit>
Diagnostics each_flag(const std::string& path, const TomlNode& file, const std::vector<std::string>& known,
                      Visit&& visit) {
  Diagnostics problems;
  for (const auto& [key, node] : file.table) {
    const auto flag = std::ranges::find(known, key);
    if (flag == known.end()) {
      problems.push_back(unknown_flag(path, node, key, known));
      continue;
    }
    if (auto problem = visit(static_cast<size_t>(flag - known.begin()), node)) problems.push_back(*std::move(problem));
  }
  return problems;
}

bool take(const wire::RunFlag& flag, const TomlNode& node, wire::RunOptions& options) {
  if (flag.is_switch()) return node.is(TomlKind::kBool) && (node.integer == 0 || flag.read("", options));
  const std::vector<std::string> words = words_of(flag, node);
  return !words.empty() &&
         std::ranges::all_of(words, [&](const std::string& word) { return flag.read(word, options); });
}

// A number that the reader turns into the same word stays a number; any other word becomes a string.
std::string toml_value(const std::string& word) {
  int64_t whole = 0;
  double number = 0;
  const bool is_plain = wire::read_value(word, whole) && std::to_string(whole) == word;
  const bool has_point =
      word.find_first_of(".e") != std::string::npos && word.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (is_plain || (has_point && wire::read_value(word, number) && wire::write_value(number) == word)) return word;
  return toml_text(word);
}

std::string group_table(const std::string& word) {
  const std::optional<wire::ParameterGroup> group = wire::parse_parameter_group(word);
  std::string lines = "\n[[group]]\npattern = " + toml_text(group.value().pattern) + "\n";
  if (group->learning_rate) lines += "lr = " + toml_value(wire::write_value(*group->learning_rate)) + "\n";
  if (group->weight_decay) lines += "weight-decay = " + toml_value(wire::write_value(*group->weight_decay)) + "\n";
  return lines;
}

std::string single_value(const wire::RunFlag& flag, const std::string& word) {
  return flag.is_switch() ? "true" : toml_value(word);
}

// Of a word in each line.
std::string list_of(const std::string& lines) {
  std::string values;
  for (const std::string_view one : split(lines, "\n"))
    values += (values.empty() ? "" : ", ") + toml_value(std::string(one));
  return "[" + values + "]";
}

}  // namespace

Result<std::vector<std::string>> words_of_config(const std::string& path, const std::vector<KnownFlag>& known,
                                                 const std::set<std::string>& typed) {
  GP_TRY(const TomlNode file, read_toml(path));
  std::vector<std::string> names, words;
  for (const KnownFlag& flag : known) names.push_back(flag.name.substr(2));
  Diagnostics problems =
      each_flag(path, file, names, [&](size_t place, const TomlNode& node) -> std::optional<Diagnostic> {
        const KnownFlag& flag = known[place];
        const auto more = typed_words(flag, node);
        if (!more)
          return wrong_line(path, node,
                            names[place] + (flag.is_switch ? " takes true or false" : " takes a text or a number"),
                            "write it as `--help` shows it; a list is the flag several times");
        if (!typed.contains(flag.name)) words.insert(words.end(), more->begin(), more->end());
        return std::nullopt;
      });
  if (!problems.empty()) return problems;
  return words;
}

Status read_config(const std::string& path, wire::FlagUser user, Options& options) {
  GP_TRY(const TomlNode file, read_toml(path));
  std::vector<std::string> names;
  std::vector<wire::RunFlag> flags;
  for (const wire::RunFlag& flag : wire::run_flags()) {
    if (flag.user == wire::FlagUser::kProgram) continue;
    names.emplace_back(flag.name + 2);
    flags.push_back(flag);
  }
  Diagnostics problems =
      each_flag(path, file, names, [&](size_t place, const TomlNode& node) -> std::optional<Diagnostic> {
        const wire::RunFlag& flag = flags[place];
        // A flag that only another verb takes is skipped, so that one file serves both.
        if (flag.user < user || options.given.contains(flag.name)) return std::nullopt;
        if (!take(flag, node, options.run))
          return wrong_line(path, node,
                            text(names[place], " takes ", flag.is_switch() ? "true or false" : flag.value_name),
                            flag.help);
        // A switch that is off was not given.
        if (!flag.is_switch() || node.integer != 0) options.given.insert(flag.name);
        return std::nullopt;
      });
  if (!problems.empty()) return problems;
  return Ok{};
}

std::string config_text(const wire::RunOptions& options) {
  const wire::RunOptions defaults;
  std::string lines = "# The flags of a run, for `graphpipe run --config`.\n", groups;
  for (const wire::RunFlag& flag : wire::run_flags()) {
    const std::string word = flag.write(options);
    if (flag.user == wire::FlagUser::kProgram || word == flag.write(defaults)) continue;
    if (flag.name == std::string_view("--group"))
      for (const std::string_view one : split(word, "\n")) groups += group_table(std::string(one));
    else lines += std::string(flag.name + 2) + " = " + (flag.repeats ? list_of(word) : single_value(flag, word)) + "\n";
  }
  return lines + groups;
}

}  // namespace graphpipe::driver
