#pragma once
// What a run says of updates, read once: all states of all stages of a rank share it.

#include <string_view>
#include <vector>

#include "runtime/io/safetensors.h"
#include "runtime/optimizers/update_rule.h"
#include "wire/learning_rate.h"

namespace graphpipe::runtime {

struct UpdateSettings {
  /// As in wire/optimizers.h.
  std::string_view optimizer = "sgd";
  wire::OptimizerOptions options;
  wire::LearningRate rate;

  /// Whether the weights change at the end of this step, from 0: of --accumulate K every K-th.
  bool is_update(int64_t step) const { return (step + 1) % options.accumulate == 0; }
  /// The numbers of a parameter: the optimizer's, the run's, and those of its group.
  UpdateTerms terms_of(std::string_view name, size_t dimensions, bool is_table) const;
};

/// Reads the file of --lr-file, where there is one. Throws RunError.
UpdateSettings update_settings(std::string_view optimizer, const wire::OptimizerOptions& options);
/// Refuses (kUsage) groups that name no parameter of the model. Throws RunError.
void check_groups(const wire::OptimizerOptions& options, const Safetensors& parameters);

}  // namespace graphpipe::runtime
