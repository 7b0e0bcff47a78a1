#pragma once
// How weights are updated. Which numbers an optimizer has, and what absent ones mean: wire/optimizers.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/parameter_group.h"
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
  /// The last one whose pattern names a parameter counts.
  std::vector<ParameterGroup> groups;
  /// No weight decay of parameters with fewer than two dimensions: biases, and weights of norms.
  bool spares_norms_and_biases = false;
  /// As LearningRate::parse takes it (learning_rate.h), and its warm-up; or a file of steps and factors.
  std::string schedule = "constant";
  int64_t warmup = 0;
  std::string schedule_file;
  /// Largest global gradient norm, and largest absolute value of a gradient's element; 0 clips nothing.
  double clip_norm = 0, clip_value = 0;
  /// Steps whose mean gradient makes one update.
  int64_t accumulate = 1;
  /// Parameters of 16 bits are updated as float32 numbers, which the optimizer keeps.
  bool main_weights = true;
  /// Where gradients are computed in float16: what the loss is first multiplied with, a power of two, or 0 for nothing;
  /// and the good updates after which that doubles.
  double loss_scale = 65536;
  int64_t loss_scale_growth = 2000;
  /// The learning rate of stage s is multiplied with R(s)/R(0), its replicas over those of the first stage.
  bool scales_by_replicas = false;
  /// A parameter server is a process of its own: how many updates old the weights of a gradient may be that it applies.
  /// Absent: there is none, and the schedule fixes the order of updates.
  std::optional<int64_t> staleness;
  /// Decay of the moving average of the weights; 0: there is none.
  double average_decay = 0;

  bool operator==(const OptimizerOptions&) const = default;
};

std::vector<RunFlag> optimizer_flags();

/// What flags say that does not go together: "--nesterov needs --momentum". Empty where all does.
std::string optimizer_flags_at_odds(const OptimizerOptions& options);

}  // namespace graphpipe::wire
