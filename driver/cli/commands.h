#pragma once
// The verbs: one entry each. An entry's example stands in its --help and is run by a test.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/options.h"
#include "support/result.h"

namespace CLI {
class App;
}

namespace graphpipe::driver {

struct CommandEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view example;
  void (*add_flags)(CLI::App&, Options&);
  /// Returns the process exit code.
  int (*run)(const Options&);
};

std::span<const CommandEntry> all_commands();

int run_inspect(const Options&);
int run_lint(const Options&);
int run_profile(const Options&);
int run_plan(const Options&);
int run_compare(const Options&);
int run_simulate(const Options&);
int run_report(const Options&);
int run_schedule(const Options&);
int run_check(const Options&);
int run_generate(const Options&);
int run_build(const Options&);
int run_compile(const Options&);
int run_run(const Options&);
int run_verify(const Options&);
int run_export(const Options&);
int run_sweep(const Options&);
int run_completion(const Options&);
int run_manual(const Options&);

/// A file that a flag or an argument names: "--order", "model".
struct NamedFile {
  std::string flag, path;
};
/// What the words after a verb mean.
struct ReadCommand {
  Options options;
  /// The files that are named, also by the flags of a config file. A path may be a name instead: --cluster summit.
  std::vector<NamedFile> files;
};
/// Reads the words as the verb would, and runs nothing. Errors: what the verb would say of the words; those of reading
/// a config file.
Result<ReadCommand> read_command(const CommandEntry& verb, const std::vector<std::string>& words);

/// Parses the command line and runs the verb. Returns the exit code.
int run_command_line(int argc, char** argv);

}  // namespace graphpipe::driver
