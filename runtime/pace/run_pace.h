#pragma once
// The program of a paced run: the executor, the transports and the collectives of a training, over a plan's schedule,
// with pauses in place of the stages' code.

namespace graphpipe::runtime {

/// Joins the other ranks, runs --steps steps and one before them, and prints on rank 0
///   step SECONDS                 of each step that counts, from the start that all ranks agree on to the last rank's
///   end late SECONDS PAUSES          by which pauses were too long on average over the ranks, of a step, and how many
///   processor SECONDS            that all ranks together took of a step
///   sent BYTES                   that all ranks together sent to others in a step
///   transport NAME
/// All are of this machine's clock. Returns a wire::ExitCode.
int run_pace(int argc, char** argv);

}  // namespace graphpipe::runtime
