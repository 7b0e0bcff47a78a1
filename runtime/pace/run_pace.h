#pragma once
// The program of a paced run: the executor, the transports and the collectives of a training, over a plan's schedule,
// with pauses in place of the stages' code.

namespace graphpipe::runtime {

/// Joins the other ranks, runs --steps steps and one before them that does not count, and prints a wire::PaceReport on
/// rank 0. Returns a wire::ExitCode.
int run_pace(int argc, char** argv);

}  // namespace graphpipe::runtime
