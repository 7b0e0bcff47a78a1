#pragma once
// A rank's life, from its arguments to its exit code.

#include <functional>

#include "runtime/program.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// Tells which program the options ask for. Throws RunError.
using ChooseProgram = std::function<const DeviceProgram&(const wire::RunOptions&)>;

/// Parses the arguments, joins the other devices, trains or computes outputs as the chosen program says, prints the
/// result lines, and ends the process with a wire::ExitCode.
[[noreturn]] void run_chosen(const PlanTable& plan, const ChooseProgram& choose, int argc, char** argv);

}  // namespace graphpipe::runtime
