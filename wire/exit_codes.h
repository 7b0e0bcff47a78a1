#pragma once
// What the exit code of every program of ours means, generated ones included.

namespace graphpipe::wire {

enum ExitCode : int {
  kExitOk = 0,
  kExitCheckFailed = 1,   // lint, verify or check found something
  kExitUsage = 2,         // the command line
  kExitInputRefused = 3,  // malformed, hostile, unsupported or over a limit
  kExitNoPlan = 4,        // no feasible plan
  kExitEnvironment = 5,   // compiler, library, port, disk
  kExitPeerFailed = 6,    // a stage or a peer died or stalled
  kExitPartial = 7,       // a time or memory budget ended with a partial result
  kExitInternal = 70,     // a defect of ours
};

}  // namespace graphpipe::wire
