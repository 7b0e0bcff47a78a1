#include "runtime/optimizers/update_settings.h"

#include <algorithm>

#include "runtime/error.h"
#include "support/name_pattern.h"

namespace graphpipe::runtime {

UpdateTerms UpdateSettings::terms_of(std::string_view name, size_t dimensions, bool is_table,
                                     std::span<const char* const> aliases) const {
  OptimizerNumbers numbers = wire::numbers_of(wire::optimizer_named(optimizer), options);
  if (options.spares_norms_and_biases && dimensions < 2) numbers.weight_decay = 0;
  for (const wire::ParameterGroup& group : options.groups) {
    if (!is_in_group(group.pattern, name, aliases)) continue;
    numbers.learning_rate = group.learning_rate.value_or(numbers.learning_rate);
    numbers.weight_decay = group.weight_decay.value_or(numbers.weight_decay);
  }
  return {.numbers = numbers, .is_table = is_table};
}

UpdateSettings update_settings(std::string_view optimizer, const wire::OptimizerOptions& options) {
  Result<wire::LearningRate> rate = wire::LearningRate::of(options);
  if (!rate.ok()) throw RunError(rate.problems());
  return {.optimizer = optimizer, .options = options, .rate = *std::move(rate)};
}

bool is_in_group(std::string_view pattern, std::string_view name, std::span<const char* const> aliases) {
  return matches(pattern, name) ||
         std::ranges::any_of(aliases, [&](const char* alias) { return matches(pattern, alias); });
}

}  // namespace graphpipe::runtime
