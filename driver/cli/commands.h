#pragma once
// The verbs: one row each. A row's example stands in its --help and is run by a test.

#include <span>
#include <string_view>

#include "driver/cli/options.h"

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

/// Parses the command line and runs the verb. Returns the exit code.
int run_command_line(int argc, char** argv);

}  // namespace graphpipe::driver
