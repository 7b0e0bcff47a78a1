#pragma once
// The optimizers, as both sides of the wall know them: the compiler plans the memory of their state and reads the flags
// of their numbers; the runtime has an update rule for each (runtime/optimizers/registry.h).

#include <span>
#include <string>
#include <string_view>

#include "support/units.h"
#include "wire/default_optimizer.h"
#include "wire/run/optimizer.h"

namespace graphpipe::wire {

/// The numbers of an update. An optimizer reads those that its entry names.
struct OptimizerNumbers {
  double learning_rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  bool nesterov = false;

  bool operator==(const OptimizerNumbers&) const = default;
};

/// How often the update of a weight reads or writes a tensor of its size (runtime/optimizers), with default numbers:
/// bytes of memory traffic per byte of weight. Of tables whose rows are looked up, of other matrices, of the rest.
struct UpdatePasses {
  double table = 3, matrix = 3, other = 3;
};

struct OptimizerEntry {
  /// The word of --optimizer and of plan files.
  const char* name;
  const char* title;
  /// What --help says of it.
  const char* description;
  /// The flags of `run` that set its numbers, separated by commas, beside --lr and --weight-decay, which all have.
  std::string_view flags;
  /// What absent numbers mean.
  OptimizerNumbers defaults;
  /// Bytes of state per byte of trained weight, at most: what plans keep free. Momentum counts although a run may go
  /// without, because runs choose it after the plan is made.
  double state_per_weight_byte;
  UpdatePasses passes = {};
  /// Its update divides by the root of the gradient's mean square, and has a second moment for `verify`.
  bool normalises = false;
  /// Without momentum and weight decay it changes of a table only the rows that were looked up.
  bool updates_rows = false;
  /// An element's update depends on all elements of the gradient: how much rounding of one may do to it, `verify` takes
  /// from the gradients themselves.
  bool mixes_elements = false;
  /// Each element is updated from its own gradient and state alone, so that replicas may divide the state.
  bool updates_apart = false;
  /// It multiplies matrices: kMatrixIterations times for each weight that is one.
  bool orthogonalises = false;
  /// It makes the whole change of a weight, and what that is divided by, before it adds it.
  bool makes_change = false;

  /// Whether `flag` ("--momentum") is one of `flags`.
  bool takes(std::string_view flag) const;
  /// Whether an update leaves state whatever the numbers of the run are; SGD's has none without momentum.
  bool always_has_state() const { return !takes("--momentum") || defaults.momentum > 0; }
};

/// Newton-Schulz iterations of an optimizer that orthogonalises.
inline constexpr int kMatrixIterations = 5;
/// Floating-point operations of the update of one matrix. In each iteration a matrix of m rows and n >= m columns is
/// multiplied with its transpose, the product with itself, and the result with the matrix. 0 where it does not
/// orthogonalise.
double update_flops(const OptimizerEntry& optimizer, int64_t rows, int64_t columns);

/// A weight as its update sees it.
struct UpdatedWeight {
  int64_t elements = 0;
  /// Those of 16 bits are updated as main weights of 32.
  Bytes element{4};
  /// Of a matrix or a table; 0 of all others. A matrix is what has them and is no table.
  int64_t rows = 0, columns = 0;
  bool is_table = false;
  /// Rows of a table that are gathered for the update; 0: it passes over all of the table.
  int64_t gathered_rows = 0;
};
/// The most that an update takes beside weights, gradients and state, on a CPU and with default numbers. Parameters are
/// updated one after the other. Those of 16 bits have their gradients in float32 meanwhile.
Bytes update_scratch(const OptimizerEntry& optimizer, const UpdatedWeight& weight);
/// Of a table of so many elements per row, how many rows are gathered at once: a multiple of kOwnedTogether elements
/// (runtime/optimizers/owned_elements.h), for the same reason.
int64_t rows_updated_together(int64_t columns);

/// In the order of help texts; the first is what is taken where none is named.
std::span<const OptimizerEntry> optimizers();
/// Null where no optimizer is called so.
const OptimizerEntry* find_optimizer(std::string_view name);
/// Of a name that was checked before. GP_CHECKs that there is one.
const OptimizerEntry& optimizer_named(std::string_view name);
/// "sgd, adam, ..."
std::string optimizer_names();
/// Of those whose state replicas may divide.
std::string divisible_optimizer_names();

/// The optimizer's numbers where the options leave them open, else the options'.
OptimizerNumbers numbers_of(const OptimizerEntry& optimizer, const OptimizerOptions& options);

}  // namespace graphpipe::wire
