#pragma once
// What a run writes and prints.

#include <string>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

struct OutputOptions {
  std::string save;
  /// The moving average of the weights (OptimizerOptions::average_decay).
  std::string save_average;
  std::string save_gradients;
  /// The model's outputs of all samples, where programs only run forwards.
  std::string save_outputs;
  /// Those of the last evaluation beside a training.
  std::string save_eval_outputs;
  /// Of the serial interpreter, for `verify`: a folder that takes what every step begins and ends with (step_file), and
  /// such a folder of another run, whose weights every step begins with.
  std::string record_steps, follow_steps;
  /// Chrome trace of what every rank did when; empty: none.
  std::string trace;
  bool json = false;
  /// With json: writes one line per step to stderr (rank 0).
  bool progress = false;

  bool operator==(const OutputOptions&) const = default;
};

std::vector<RunFlag> output_flags();

}  // namespace graphpipe::wire
