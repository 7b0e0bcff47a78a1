#pragma once
// The flags of each verb, by the groups of options.h.

#include "driver/cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace graphpipe::driver {

/// Whether what it takes is the path of a file: help shows FILE for it.
bool names_file(const CLI::Option&);

void inspect_flags(CLI::App&, Options&);
void lint_flags(CLI::App&, Options&);
void profile_flags(CLI::App&, Options&);
void plan_flags(CLI::App&, Options&);
void compare_flags(CLI::App&, Options&);
void simulate_flags(CLI::App&, Options&);
void report_flags(CLI::App&, Options&);
void schedule_flags(CLI::App& app, Options& options);
void check_flags(CLI::App& app, Options& options);
void generate_flags(CLI::App&, Options&);
void build_flags(CLI::App&, Options&);
void compile_flags(CLI::App&, Options&);
void run_flags(CLI::App&, Options&);
void verify_flags(CLI::App&, Options&);
void export_flags(CLI::App&, Options&);
void sweep_flags(CLI::App&, Options&);
void completion_flags(CLI::App&, Options&);
void manual_flags(CLI::App&, Options&);

}  // namespace graphpipe::driver
