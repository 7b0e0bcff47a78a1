#pragma once
// How `graphpipe VERB --help` shows a flag: what it takes, what it is, the words or numbers that it accepts, its
// default. Man pages, the reference and the completion of shells say the same.

#include <string>
#include <vector>

#include "driver/cli/commands.h"

namespace graphpipe::driver {

/// Adds --help and the verb's flags to an app that has none, for words that go into `options`. Defaults are what stands
/// there now; 0, -1 and empty texts and lists stand for none and are not shown.
void add_flags_with_help(CLI::App& app, const CommandEntry& verb, Options& options);

/// A flag of a verb, or one of its arguments, as help shows it.
struct ShownFlag {
  /// Without dashes: "o", "output". Both are empty for arguments.
  std::vector<std::string> short_names, long_names;
  /// The name of an argument: "model". Empty for flags.
  std::string argument;
  /// What it takes: "N" or "X" a number, "X,Y" two, "FILE" a file, "TEXT" any text, often another path,
  /// "on|off". Empty for switches.
  std::string value;
  /// The words that it accepts; empty where they are not a list.
  std::vector<std::string> choices;
  /// With limits and default.
  std::string help;
  /// The heading that it stands under; empty where it is a flag like all.
  std::string group;
  bool required = false;
};

/// In the order of --help. Needs: the flags are those of add_flags_with_help.
std::vector<ShownFlag> shown_flags(const CLI::App& app);

/// What `graphpipe VERB --help` prints. Needs: as shown_flags.
std::string help_text(const CLI::App& app, const CommandEntry& verb);

}  // namespace graphpipe::driver
