#pragma once
// How weights are updated. Which numbers an optimizer has, and what absent ones mean: wire/optimizers.h.

#include <optional>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

/// Decays of Adam's two moments.
struct Betas {
  double first = 0, second = 0;
  bool operator==(const Betas&) const = default;
};

struct OptimizerOptions {
  /// Absent: the optimizer's own.
  std::optional<double> learning_rate, momentum, weight_decay, epsilon;
  std::optional<Betas> betas;
  /// Looks ahead by one step of the momentum.
  bool nesterov = false;
  /// Largest global gradient norm; 0 clips nothing.
  double clip_norm = 0;

  bool operator==(const OptimizerOptions&) const = default;
};

std::vector<RunFlag> optimizer_flags();

}  // namespace graphpipe::wire
