#pragma once
// The program of a paced run: the executor, the transports and the collectives of a training, running a plan's schedule
// with pauses instead of the stages' code.

namespace graphpipe::runtime {

/// Joins the other ranks, runs --steps steps after one that does not count, and prints a wire::PaceReport on rank 0.
/// Returns a wire::ExitCode.
int run_pace(int argc, char** argv);

}  // namespace graphpipe::runtime
