#pragma once
// How `graphpipe VERB --help` shows a flag: what it takes, what it is, the words or numbers that it accepts, its
// default. Man pages, the reference and the completion of shells say the same.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace graphpipe::driver {

/// Sets the app's formatter, and captures the defaults that stand in the options' variables now: call it before
/// parsing. 0, -1 and empty texts stand for none and are not shown.
void show_helpfully(CLI::App& app);

/// A flag of a verb, or one of its arguments, as help shows it.
struct ShownFlag {
  /// Without dashes: "o", "output". Both are empty for arguments.
  std::vector<std::string> short_names, long_names;
  /// The name of an argument: "model". Empty for flags.
  std::string argument;
  /// What it takes: "N" or "X" a number, "X,Y" two, "TEXT" any text, often a path, "on|off". Empty for switches.
  std::string value;
  /// The words that it accepts; empty where they are not a list.
  std::vector<std::string> choices;
  /// With limits and default.
  std::string help;
  bool required = false;
};

/// In the order of --help. Needs: show_helpfully was called.
std::vector<ShownFlag> shown_flags(const CLI::App& app);

}  // namespace graphpipe::driver
