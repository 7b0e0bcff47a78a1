#pragma once
// How weights are updated.

#include <optional>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

/// What absent numbers of an optimizer mean.
inline constexpr double kSgdLearningRate = 0.01, kAdamWLearningRate = 1e-3, kAdamWWeightDecay = 0.01;

struct OptimizerOptions {
  /// Absent: as above.
  std::optional<double> learning_rate;
  double momentum = 0;
  std::optional<double> weight_decay;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Largest global gradient norm; 0 clips nothing.
  double clip_norm = 0;

  bool operator==(const OptimizerOptions&) const = default;
};

std::vector<RunFlag> optimizer_flags();

}  // namespace graphpipe::wire
