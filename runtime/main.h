#pragma once
// The main functions of generated programs. Nothing is included: a project has a file with `main` for each device, and
// each compiles in a few hundredths of a second.

namespace graphpipe::runtime {

struct DeviceProgram;  // runtime/program.h

/// The main function of a device's executable: parses the arguments, joins the other devices, trains, prints its
/// result lines. Returns a wire::ExitCode.
int run_device(const DeviceProgram& program, int argc, char** argv);

/// The main function of the one executable that every rank may start: runs the program of its rank, which --rank or the
/// launcher's environment gives. Without either, and with several programs, it ends with kExitUsage. `programs` are
/// those of the plan, `count` >= 1 of them in the order of their ranks.
int run_rank(const DeviceProgram* const* programs, int count, int argc, char** argv);

/// The main function of the serial interpreter (docs/semantics.md, section 2): all programs of the plan, `count` >= 1
/// of them, in one process and one thread, without channels or slot rings.
int run_serial(const DeviceProgram* const* programs, int count, int argc, char** argv);

}  // namespace graphpipe::runtime
