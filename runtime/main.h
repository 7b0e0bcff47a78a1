#pragma once
// The main functions of generated programs. Nothing is included: a project has a file with `main` for each device, and
// each compiles in a few hundredths of a second. They end the process with a wire::ExitCode and do not return.

namespace graphpipe::runtime {

struct DeviceProgram;  // runtime/program.h
struct StageEntry;

/// A device's program and the stages that it holds. The tables of devices stand in one library and name no stages: so
/// an executable links only those that its main function names.
struct LinkedProgram {
  const DeviceProgram* program;
  const StageEntry* const* stages;
  int stage_count;
};

/// The main function of a device's executable: parses the arguments, joins the other devices, trains, prints its
/// result lines.
[[noreturn]] int run_device(const LinkedProgram& program, int argc, char** argv);

/// The main function of the one executable that every rank may start: runs the program of its rank, which --rank or the
/// launcher's environment gives. Without either, and with several programs, it ends with kExitUsage. `programs` are
/// those of the plan, `count` >= 1 of them in the order of their ranks. With --serial it is `run_serial`.
[[noreturn]] int run_rank(const LinkedProgram* programs, int count, int argc, char** argv);

/// The serial interpreter (docs/semantics.md, section 2): all programs of the plan, `count` >= 1 of them, in one process
/// and one thread, without channels or slot rings.
[[noreturn]] int run_serial(const LinkedProgram* programs, int count, int argc, char** argv);

}  // namespace graphpipe::runtime
