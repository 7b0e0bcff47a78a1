#pragma once
// The options of a run that concern updates, read once and shared by all states of all stages of a rank.

#include <span>
#include <string_view>

#include "runtime/optimizers/update_rule.h"
#include "wire/learning_rate.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {

struct UpdateSettings {
  /// As in wire/optimizers.h.
  std::string_view optimizer = wire::kDefaultOptimizer;
  wire::OptimizerOptions options;
  wire::LearningRate rate;

  /// Whether the weights change at the end of this step (counted from 0): with --accumulate K, every K-th.
  bool is_update(int64_t step) const { return (step + 1) % options.accumulate == 0; }
  /// The terms of a parameter: numbers of the optimizer, of the run, and of the parameter's group.
  UpdateTerms terms_of(std::string_view name, size_t dimensions, bool is_table,
                       std::span<const char* const> aliases = {}) const;
};

/// Reads the file of --lr-file, if there is one. Throws RunError.
UpdateSettings update_settings(std::string_view optimizer, const wire::OptimizerOptions& options);
/// Whether a group's pattern matches the name, or one of the aliases.
bool is_in_group(std::string_view pattern, std::string_view name, std::span<const char* const> aliases);

}  // namespace graphpipe::runtime
