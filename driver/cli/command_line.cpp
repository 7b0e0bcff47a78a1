// The command line: finds the verb, refuses unknown words with the nearest known one, and maps every outcome to an exit
// code of wire/exit_codes.h.

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "driver/cli/commands.h"
#include "driver/cli/config_file.h"
#include "driver/cli/flag_use.h"
#include "driver/cli/flags.h"
#include "driver/cli/help_text.h"
#include "driver/cli/manual.h"
#include "driver/cli/suggestion.h"
#include "driver/report/report.h"
#include "support/text.h"
#include "wire/exit_codes.h"
#include "wire/version.h"

namespace graphpipe::driver {
namespace {

int usage_error(const std::string& message) {
  std::cerr << "graphpipe: " << message << "\n";
  return wire::kExitUsage;
}

std::string shown(std::string_view word) { return "'" + Terminal::encode_text(word).str() + "'"; }

void print_overview() {
  std::cout << kWhatItIs << "\n\nusage: graphpipe VERB [flags]\n\n";
  for (const CommandEntry& entry : all_commands())
    std::cout << "  " << entry.name << std::string(12 - entry.name.size(), ' ') << entry.summary << "\n";
  std::cout << "\n`graphpipe VERB --help` lists a verb's flags with an example; "
               "`graphpipe --version` names the build.\n"
               "Exit codes:";
  std::string separator = " ";
  for (const ExitMeaning& exit : exit_meanings()) {
    std::cout << separator << exit.code << " " << exit.meaning;
    separator = exit.code == wire::kExitEnvironment || exit.code == wire::kExitInternal ? ",\n" : ", ";
  }
  std::cout << ".\n";
}

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

// Accepts `--micro_batch` for `--micro-batch`. Returns the length of the flag without its value.
size_t normalise_flag(std::string& word) {
  const size_t end = std::min(word.find('='), word.size());
  std::replace(word.begin() + 2, word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return end;
}

// Appends the flags of `--config FILE` to the words that are typed, before these are parsed: the file may hold a flag
// that the verb requires.
Status add_words_of_config(const CLI::App& app, const Options& options, std::vector<std::string>& words) {
  if (options.config_user || app.get_option_no_throw("--config") == nullptr) return Ok{};
  std::string file;
  std::set<std::string> typed;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t end = std::min(words[i].find('='), words[i].size());
    const CLI::Option* option = app.get_option_no_throw(words[i].substr(0, end));
    if (!words[i].starts_with("-") || option == nullptr) continue;
    for (const std::string& name : option->get_lnames()) typed.insert("--" + name);
    if (option->check_lname("config"))
      file = end < words[i].size() ? words[i].substr(end + 1) : i + 1 < words.size() ? words[i + 1] : "";
  }
  if (file.empty()) return Ok{};
  constexpr std::string_view kOnlyTyped[] = {"config", "help", "json", "quiet"};
  std::vector<KnownFlag> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (std::ranges::find(kOnlyTyped, name) == std::end(kOnlyTyped))
        known.push_back({.name = "--" + name, .is_switch = option->get_expected_max() == 0});
  GP_TRY(const std::vector<std::string> more, words_of_config(file, known, typed));
  words.insert(words.end(), more.begin(), more.end());
  return Ok{};
}

/// The verbs that have a flag of this name.
std::vector<std::string> verbs_with(const std::string& flag) {
  std::vector<std::string> verbs;
  for (const CommandEntry& entry : all_commands()) {
    CLI::App app;
    Options options;
    add_flags_with_help(app, entry, options);
    const std::vector<std::string> flags = long_flags(app);
    if (std::ranges::find(flags, flag) != flags.end()) verbs.emplace_back(entry.name);
  }
  return verbs;
}

/// What is known instead: the verbs with a flag of this name, or the flag of this verb with the nearest.
std::string known_instead(const std::string& flag, const std::vector<std::string>& known) {
  const std::vector<std::string> verbs = verbs_with(flag);
  return verbs.empty() ? suggestion(flag, known) : fmt::format(", which belongs to {}", fmt::join(verbs, ", "));
}

Diagnostic wrong_word(const CommandEntry& entry, const std::string& message) {
  return {.code = Code::kUsage, .message = message, .hint = "see `graphpipe " + std::string(entry.name) + " --help`"};
}

// Reads the words of a verb, and those of its config file, into the options of the app. Lets CLI::CallForHelp pass.
Status read_words(CLI::App& app, const CommandEntry& entry, std::vector<std::string> words, Options& options) {
  const std::vector<std::string> known = long_flags(app);
  for (std::string& word : words) {
    if (!word.starts_with("--") || word.size() == 2) continue;
    const std::string flag = word.substr(0, normalise_flag(word));
    const std::string name = word.substr(0, flag.size());
    if (std::ranges::find(known, name) == known.end())
      return wrong_word(entry, "unknown flag " + shown(flag) + known_instead(name, known));
  }
  GP_TRY_VOID(add_words_of_config(app, options, words));
  std::reverse(words.begin(), words.end());  // CLI11 reads its vector from the back
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--lr: At Most 1 required but received 2"
    const std::string_view words = error.what();
    const size_t end = words.find(": At Most 1 ");
    if (end == std::string_view::npos) return wrong_word(entry, Terminal::encode_text(words).str());
    const std::string flag = Terminal::encode_text(words.substr(0, end)).str();
    return wrong_word(entry,
                      flag + " is given more than once, and takes one value" +
                          (flag == "--loss" ? " (a sum of several losses is made in forward: output:NAME)" : ""));
  } catch (const CLI::ParseError& error) {
    return wrong_word(entry, Terminal::encode_text(error.what()).str());
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    for (const std::string& name : option->get_lnames()) options.given.insert("--" + name);
    // An unset variable of a script, most likely.
    if (std::ranges::find(option->results(), "") != option->results().end())
      return wrong_word(entry, option->get_name() + " is given an empty value");
    for (const std::string& value : option->results())
      if (std::ranges::find(known, value.substr(0, value.find('='))) != known.end())
        return wrong_word(entry,
                          option->get_name() + " is followed by the flag " + shown(value) + " and not by a value");
  }
  if (options.config_user && !options.config.empty())
    GP_TRY_VOID(read_config(options.config, *options.config_user, options));
  return check_flag_use(entry.name, options);
}

// The standard library throws where the disk or the memory fails; here that becomes a report and an exit code.
int run_guarded(const CommandEntry& entry, const Options& options) {
  Diagnostic problem{.code = Code::kEnvironment, .hint = "check the path, its permissions and its symbolic links"};
  try {
    return entry.run(options);
  } catch (const std::filesystem::filesystem_error& error) {
    problem.origin = ModelText(error.path1().string());
    problem.message = "the file system refused: " + error.code().message();
  } catch (const std::bad_alloc&) {
    problem.message = "memory ran out";
    problem.hint = "use a machine with more memory, or a smaller model";
  }
  return report_problems(options, entry.name, {problem});
}

int run_verb(const CommandEntry& entry, const std::vector<std::string>& words) {
  Options options;
  CLI::App app;
  add_flags_with_help(app, entry, options);
  try {
    if (const Status read = read_words(app, entry, words, options); !read) {
      // Where a word is refused, those after it are not read.
      options.json = std::ranges::find(words, "--json") != words.end();
      return report_problems(options, entry.name, read.problems());
    }
  } catch (const CLI::CallForHelp&) {
    std::cout << help_text(app, entry);
    return wire::kExitOk;
  }
  return run_guarded(entry, options);
}

int run_words(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_overview();
    return words.empty() ? static_cast<int>(wire::kExitUsage) : static_cast<int>(wire::kExitOk);
  }
  if (words[0] == "--version") {
    std::cout << "graphpipe " << wire::kToolVersion << "\n";
    return wire::kExitOk;
  }
  std::vector<std::string> verbs;
  for (const CommandEntry& entry : all_commands()) {
    if (entry.name == words[0]) return run_verb(entry, {words.begin() + 1, words.end()});
    verbs.emplace_back(entry.name);
  }
  return usage_error("unknown verb " + shown(words[0]) + suggestion(words[0], verbs) +
                     " (`graphpipe --help` lists them)");
}

// Started with one of them closed, files and pipes of ours would take its number, and children would get them as their
// output. What is held open here still cannot be written.
void hold_standard_descriptors() {
  int held = open("/dev/null", O_RDONLY);
  while (held >= 0 && held <= STDERR_FILENO) held = open("/dev/null", O_RDONLY);
  if (held >= 0) close(held);
}

}  // namespace

Result<ReadCommand> read_command(const CommandEntry& verb, const std::vector<std::string>& words) {
  ReadCommand command;
  CLI::App app;
  add_flags_with_help(app, verb, command.options);
  try {
    GP_TRY_VOID(read_words(app, verb, words, command.options));
  } catch (const CLI::CallForHelp&) {
    return wrong_word(verb, "help is no command that can be read");
  }
  for (const CLI::Option* option : app.get_options())
    if (names_file(*option))
      for (const std::string& path : option->results()) command.files.push_back({option->get_name(), path});
  return command;
}

int run_command_line(int argc, char** argv) {
  hold_standard_descriptors();
  signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, which says what it is
  const int code = run_words({argv + std::min(argc, 1), argv + argc});
  // A result that could not be written is a failure: the pipe was closed, or the disk is full.
  if (std::cout.flush()) return code;
  std::cerr << "graphpipe: standard output cannot be written; check where it goes, and its space\n";
  return code == wire::kExitOk ? static_cast<int>(wire::kExitEnvironment) : code;
}

}  // namespace graphpipe::driver
