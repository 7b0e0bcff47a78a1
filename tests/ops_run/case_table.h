#pragma once
// What the generated half of the op tests tells the running half: for each example of each row a function, its inputs
// with their values, and what the dictionary says about the outputs.

#include <cstdint>
#include <initializer_list>
#include <span>

#include "runtime/program.h"

namespace graphpipe::ops_run {

/// A list in a constant: a table of them is data. As vectors, the code that fills them took two thirds of the time to
/// compile the cases.
template <typename T>
struct List {
  std::initializer_list<T> items;

  size_t size() const { return items.size(); }
  bool empty() const { return items.size() == 0; }
  const T& operator[](size_t i) const { return items.begin()[i]; }
  const T* begin() const { return items.begin(); }
  const T* end() const { return items.end(); }
};

struct TensorCase {
  runtime::ElementType type = runtime::ElementType::kFloat32;
  List<runtime::DimRow> dims;
  /// The axis that holds the batch, -1 where none does, -2 where samples are mixed.
  int batch_axis = -1;
  /// Elements at kCaseSamples samples, row by row; empty for outputs.
  List<double> values;
};

/// The function reads `inputs` from the first slots and leaves `outputs`, then the gradients, in the next ones.
struct Case {
  const char* name = nullptr;
  /// Why there is no function; null where all is well.
  const char* problem = nullptr;
  runtime::StageFunction run = nullptr;
  /// The same, for inputs of type float64.
  runtime::StageFunction run_double = nullptr;
  List<TensorCase> inputs;
  List<TensorCase> outputs;
  /// The outputs whose weighted sum is differentiated, and the inputs that hold the weights of the sum.
  List<int> weighted_outputs, weights;
  /// The inputs that have a gradient.
  List<int> differentiated;
  /// Inputs that the op updates in place.
  List<int> updated;
  /// The op works on the samples together.
  bool mixes_samples = false;
  /// Of each node, in the order in which the function runs them: its operator, and the bytes that the dictionary says
  /// it makes and has beside them while it runs.
  struct Step {
    const char* op = nullptr;
    double made = 0, scratch = 0;
    /// The largest of what it reads and makes: ops::OpDef::temporaries are as large.
    double largest = 0;
  };
  List<Step> steps;
  /// ops::Dependence, as a number, and the value of attribute `axis`, else -1.
  int dependence = 0, axis = -1;
  /// Whether the op says that each output has memory of its own.
  bool owns_outputs = false;
  /// The forward op alone, of input 0 negated into a tensor that the op overwrites. Null where it overwrites none.
  runtime::StageFunction run_in_place = nullptr;
};

inline constexpr int64_t kCaseSamples = 5;

/// Defined by the generated files: all cases, by part.
std::span<const std::span<const Case>> all_cases();

}  // namespace graphpipe::ops_run
