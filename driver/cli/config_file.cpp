#include "driver/cli/config_file.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

// The parser (3.3) runs into its own assertions on some malformed files: here they are errors like the others.
#define TOML_EXCEPTIONS 1
#undef NDEBUG
#define TOML_ASSERT(expression) (static_cast<bool>(expression) ? void() : throw std::logic_error(#expression))
#define TOML_HEADER_ONLY 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"  // in functions that cannot throw it ends the program, as an assertion does
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "driver/cli/suggestion.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 20;

// A value as the command line would have it; empty where a flag has no such value.
std::optional<std::string> word_of(const toml::node& node) {
  if (const auto* word = node.as_string()) return word->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return wire::write_value(number->get());
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty()) return std::nullopt;
  std::string words;
  for (const toml::node& each : *list) {
    const std::optional<std::string> word = each.is_number() ? word_of(each) : std::nullopt;
    if (!word) return std::nullopt;
    words += (words.empty() ? "" : ",") + *word;
  }
  return words;
}

// A table of a list of groups: its pattern, then its numbers, in the form of the flag.
std::optional<std::string> group_word(const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return word_of(node);
  const toml::node* pattern = table->get("pattern");
  if (pattern == nullptr || !pattern->is_string()) return std::nullopt;
  std::string numbers;
  for (const auto& [key, value] : *table) {
    if (key.str() == "pattern") continue;
    const std::optional<std::string> number = value.is_number() ? word_of(value) : std::nullopt;
    if (!number) return std::nullopt;
    numbers += (numbers.empty() ? "" : ",") + std::string(key.str()) + "=" + *number;
  }
  return *word_of(*pattern) + ":" + numbers;
}

// One word for each time that the flag would be typed; empty where the value does not fit it.
std::vector<std::string> words_of(const wire::RunFlag& flag, const toml::node& node) {
  std::vector<std::string> words;
  if (!flag.repeats) {
    if (std::optional<std::string> word = word_of(node)) words.push_back(*std::move(word));
    return words;
  }
  const toml::array* list = node.as_array();
  if (list == nullptr) return words;
  for (const toml::node& each : *list) {
    std::optional<std::string> word = group_word(each);
    if (!word) return {};
    words.push_back(*std::move(word));
  }
  return words;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, wire::FlagUser user, Options& options)
      : path_(path), user_(user), options_(options), typed_(options.given) {}

  Diagnostics read(const toml::table& table) {
    for (const auto& [key, value] : table) read_flag("--" + std::string(key.str()), value);
    return std::move(problems_);
  }

 private:
  void read_flag(const std::string& name, const toml::node& node) {
    std::vector<std::string> known;
    for (const wire::RunFlag& flag : wire::run_flags()) {
      if (flag.user == wire::FlagUser::kProgram) continue;
      known.emplace_back(flag.name + 2);
      // A verb that has no use for a flag of another leaves it: one file serves both.
      if (name != flag.name || flag.user < user_ || typed_.contains(name)) continue;
      options_.given.insert(name);
      if (!take(flag, node))
        add(node, text(name.substr(2), " takes ", flag.is_switch() ? "true" : flag.value_name), flag.help);
    }
    if (std::ranges::find(known, name.substr(2)) == known.end())
      add(node, text("there is no flag ", quoted(ModelText(name)), suggestion(name.substr(2), known)),
          "`--help` lists the flags; keys are their names without the dashes");
  }

  bool take(const wire::RunFlag& flag, const toml::node& node) {
    if (flag.is_switch()) {
      const auto* value = node.as_boolean();
      return value != nullptr && (!value->get() || flag.read("", options_.run));
    }
    const std::vector<std::string> words = words_of(flag, node);
    return !words.empty() &&
           std::ranges::all_of(words, [&](const std::string& word) { return flag.read(word, options_.run); });
  }

  void add(const toml::node& node, std::string message, std::string hint) {
    problems_.push_back({.code = Code::kMalformedFile,
                         .origin = ModelText(path_),
                         .message = text("line ", node.source().begin.line, ": ", message),
                         .hint = std::move(hint)});
  }

  const std::string& path_;
  wire::FlagUser user_;
  Options& options_;
  std::set<std::string> typed_;
  Diagnostics problems_;
};

std::string toml_string(const std::string& word) {
  std::ostringstream out;
  out << toml::value<std::string>(word);
  return out.str();
}

// Numbers that the reader turns into the same word stay numbers.
std::string toml_value(const std::string& word) {
  int64_t whole = 0;
  double number = 0;
  const bool is_plain = wire::read_value(word, whole) && std::to_string(whole) == word;
  const bool has_point =
      word.find_first_of(".e") != std::string::npos && word.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (is_plain || (has_point && wire::read_value(word, number) && wire::write_value(number) == word)) return word;
  return toml_string(word);
}

std::string group_table(const std::string& word) {
  const std::optional<wire::ParameterGroup> group = wire::parse_parameter_group(word);
  std::string lines = "\n[[group]]\npattern = " + toml_string(group.value().pattern) + "\n";
  if (group->learning_rate) lines += "lr = " + toml_value(wire::write_value(*group->learning_rate)) + "\n";
  if (group->weight_decay) lines += "weight-decay = " + toml_value(wire::write_value(*group->weight_decay)) + "\n";
  return lines;
}

Diagnostic no_toml(const std::string& path, std::string message) {
  return {.code = Code::kMalformedFile,
          .origin = ModelText(path),
          .message = std::move(message),
          .hint = "write it as TOML: name = value lines, strings in quotation marks"};
}

Result<toml::table> parse(const std::string& content, const std::string& path) {
  try {
    return toml::parse(content);
  } catch (const toml::parse_error& error) {
    return no_toml(path, text("line ", error.source().begin.line, ": ", error.description()));
  } catch (const std::logic_error&) {
    return no_toml(path, "line 1 or a later one is malformed in a way that the parser cannot place");
  }
}

}  // namespace

Status read_config(const std::string& path, wire::FlagUser user, Options& options) {
  GP_TRY(const std::string content, files::read_file(path, kMaxBytes));
  GP_TRY(const toml::table table, parse(content, path));
  Diagnostics problems = ConfigReader(path, user, options).read(table);
  if (!problems.empty()) return problems;
  return Ok{};
}

std::string config_text(const wire::RunOptions& options) {
  const wire::RunOptions defaults;
  std::string lines = "# The flags of a run, for `graphpipe run --config`.\n", groups;
  for (const wire::RunFlag& flag : wire::run_flags()) {
    const std::string word = flag.write(options);
    if (flag.user == wire::FlagUser::kProgram || word == flag.write(defaults)) continue;
    std::istringstream each(word);
    for (std::string one; flag.repeats && std::getline(each, one);) groups += group_table(one);
    if (!flag.repeats)
      lines += std::string(flag.name + 2) + " = " + (flag.is_switch() ? "true" : toml_value(word)) + "\n";
  }
  return lines + groups;
}

}  // namespace graphpipe::driver
