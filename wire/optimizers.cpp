#include "wire/optimizers.h"

#include <algorithm>

#include "support/check.h"

namespace graphpipe::wire {
namespace {

constexpr OptimizerEntry kOptimizers[] = {
    {.name = "sgd",
     .title = "SGD",
     .description = "stochastic gradient descent, with or without momentum",
     .flags = "--momentum,--nesterov",
     .defaults = {.learning_rate = 0.01},
     .state_per_weight_byte = 1,
     .passes = {3, 3, 3},
     .updates_rows = true,
     .updates_apart = true},
    {.name = "adam",
     .title = "Adam",
     .description = "weight decay added to the gradient",
     .flags = "--betas,--eps",
     .defaults = {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
     .state_per_weight_byte = 2,
     .passes = {7, 7, 7},
     .normalises = true,
     .updates_apart = true},
    {.name = "adamw",
     .title = "AdamW",
     .description = "Adam with decoupled weight decay",
     .flags = "--betas,--eps",
     .defaults = {.learning_rate = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
     .state_per_weight_byte = 2,
     .passes = {7, 7, 7},
     .normalises = true,
     .updates_apart = true},
    {.name = "lamb",
     .title = "LAMB",
     .description = "Adam's update, scaled by the norm of each weight tensor",
     .flags = "--betas,--eps",
     .defaults = {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6},
     .state_per_weight_byte = 2,
     .passes = {26, 26, 26},
     .normalises = true,
     .mixes_elements = true,
     .makes_change = true},
    {.name = "adagrad",
     .title = "Adagrad",
     .description = "divides by the root of the sum of all squares so far",
     .flags = "--eps",
     .defaults = {.learning_rate = 0.01, .epsilon = 1e-10},
     .state_per_weight_byte = 1,
     .passes = {5, 5, 5},
     .normalises = true,
     .updates_rows = true,
     .updates_apart = true},
    {.name = "row-wise-adagrad",
     .title = "row-wise Adagrad",
     .description = "Adagrad with one sum per row of an embedding table",
     .flags = "--eps",
     .defaults = {.learning_rate = 0.01, .epsilon = 1e-8},
     .state_per_weight_byte = 1,
     .passes = {4, 5, 5},
     .normalises = true,
     .updates_rows = true},
    {.name = "muon",
     .title = "Muon",
     .description = "orthogonal updates of matrices; AdamW for tables and all that is no matrix",
     .flags = "--momentum,--betas,--eps",
     .defaults =
         {.learning_rate = 1e-3, .weight_decay = 0.1, .momentum = 0.95, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8},
     .state_per_weight_byte = 2,
     .passes = {7, 14, 7},
     .normalises = true,
     .mixes_elements = true,
     .orthogonalises = true},
};

template <typename Condition>
std::string names_where(const Condition& holds) {
  std::string names;
  for (const OptimizerEntry& entry : kOptimizers)
    if (holds(entry)) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

}  // namespace

bool OptimizerEntry::takes(std::string_view flag) const {
  for (std::string_view rest = flags; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (rest.substr(0, comma) == flag) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

double update_flops(const OptimizerEntry& optimizer, int64_t rows, int64_t columns) {
  if (!optimizer.orthogonalises) return 0;
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return kMatrixIterations * (2 * m * m * n + 2 * m * m * m + 2 * m * m * n);
}

int64_t rows_updated_together(int64_t columns) {
  constexpr int64_t kElements = int64_t{1} << 14, kRows = 64;
  return std::max(kElements / std::max<int64_t>(columns, 1) / kRows, int64_t{1}) * kRows;
}

Bytes update_scratch(const OptimizerEntry& optimizer, const UpdatedWeight& weight) {
  // One that has a sum per row has the root of each beside it.
  const bool sums_rows = optimizer.updates_rows && !optimizer.updates_apart && weight.is_table;
  if (weight.gathered_rows > 0) {
    const int64_t state = !optimizer.always_has_state() ? 0 : sums_rows ? 2 : weight.columns;
    const Bytes gathered = std::min(weight.gathered_rows, rows_updated_together(weight.columns)) *
                           (weight.columns + state) * weight.element;
    // Replicas and copies in other stages pass over all rows.
    return sums_rows ? std::max(gathered, weight.rows * weight.element) : gathered;
  }
  const bool is_matrix = weight.rows > 0 && !weight.is_table, is_half = weight.element == Bytes(2);
  int64_t elements = is_half ? weight.elements : 0;             // the gradient in float32
  if (optimizer.makes_change) elements += 2 * weight.elements;  // and what it is divided by
  if (sums_rows) elements += weight.rows;
  if (optimizer.orthogonalises && is_matrix) {
    // Of an iteration: the matrix, its product with itself, a polynomial of that, and the next matrix.
    const int64_t shorter = std::min(weight.rows, weight.columns);
    elements += 2 * weight.elements + 2 * shorter * shorter;
  }
  return elements * (is_half ? Bytes(4) : weight.element);
}

std::span<const OptimizerEntry> optimizers() { return kOptimizers; }

const OptimizerEntry* find_optimizer(std::string_view name) {
  const auto* const found =
      std::ranges::find(kOptimizers, name, [](const auto& entry) { return std::string_view(entry.name); });
  return found == std::end(kOptimizers) ? nullptr : found;
}

const OptimizerEntry& optimizer_named(std::string_view name) {
  const OptimizerEntry* found = find_optimizer(name);
  GP_CHECK(found != nullptr);
  return *found;
}

std::string optimizer_names() {
  return names_where([](const OptimizerEntry&) { return true; });
}

std::string divisible_optimizer_names() {
  return names_where([](const OptimizerEntry& entry) { return entry.updates_apart; });
}

OptimizerNumbers numbers_of(const OptimizerEntry& optimizer, const OptimizerOptions& options) {
  const OptimizerNumbers& defaults = optimizer.defaults;
  return {.learning_rate = options.learning_rate.value_or(defaults.learning_rate),
          .weight_decay = options.weight_decay.value_or(defaults.weight_decay),
          .momentum = options.momentum.value_or(defaults.momentum),
          .beta1 = options.betas ? options.betas->first : defaults.beta1,
          .beta2 = options.betas ? options.betas->second : defaults.beta2,
          .epsilon = options.epsilon.value_or(defaults.epsilon),
          .nesterov = options.nesterov || defaults.nesterov};
}

}  // namespace graphpipe::wire
