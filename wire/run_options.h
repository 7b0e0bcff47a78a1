#pragma once
// The arguments of a training run: what `graphpipe run` and `graphpipe verify` take, what they pass to the programs
// that they start, and what a user may type under torchrun, srun or mpirun. Flags take their value as `--flag value` or
// `--flag=value`. Each group of flags is a file of wire/run.

#include <cstdint>
#include <string>
#include <vector>

#include "wire/run/checkpoint.h"
#include "wire/run/data.h"
#include "wire/run/flag.h"
#include "wire/run/launch.h"
#include "wire/run/optimizer.h"
#include "wire/run/output.h"
#include "wire/run/watch.h"

namespace graphpipe::wire {

inline constexpr int64_t kMaxSteps = int64_t{1} << 30;

struct RunOptions {
  DataOptions data;
  OptimizerOptions optimizer;
  CheckpointOptions checkpoint;
  OutputOptions output;
  WatchOptions watch;
  LaunchOptions launch;

  bool operator==(const RunOptions&) const = default;
};

/// All flags, group by group.
const std::vector<RunFlag>& run_flags();

/// The file of a recorded step: "FOLDER/step3.gradients.safetensors". Steps count from 1; the weights of step 0 are
/// those that the first one began with. Kinds: weights (after the step), gradients, and
/// what tells how rounding shows in weights: update_scales, of each parameter what its update was multiplied with and
/// the norm of the gradients in it, and second_moments, by whose root updates of most optimizers divide; and loss_scale,
/// in float16 that of the step and whether its gradients overflowed.
std::string step_file(const std::string& folder, int64_t step, const std::string& kind);

/// What flags say that does not go together; empty where all does.
std::string flags_at_odds(const RunOptions& options);

/// Reads the arguments after the program's name. Returns an empty text, or what is wrong with them.
std::string parse_run_options(const std::vector<std::string>& arguments, RunOptions& options);

/// The arguments that parse back into `options`; defaults are left out.
std::vector<std::string> to_arguments(const RunOptions& options);

/// The text of --help of a device program.
std::string run_options_help();

}  // namespace graphpipe::wire
