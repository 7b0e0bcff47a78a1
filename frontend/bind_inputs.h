#pragma once
// Finds the batch among the inputs' dimensions and gives every other one a size.

#include <set>
#include <string>

#include "frontend/lowering.h"

namespace graphpipe::frontend {

struct BatchChoice {
  /// The symbol that is the batch; empty where a fixed first dimension is re-bound.
  std::string symbol;
  /// The fixed batch that is re-bound, or 0.
  int64_t traced = 0;
  /// The inputs whose second dimension is the batch: sequences and first states that LSTM, GRU and RNN read.
  std::set<std::string> time_first;
};

/// The batch is the symbol that a binding of size 0 names, else the first input's symbolic first dimension, else the
/// first dimension of the first input that has one, a fixed size that other inputs may share. Where a recurrent node
/// reads an input as it is, ONNX says which dimension is the batch: the second one. Where the file is one sample there
/// is none.
BatchChoice choose_batch(const GraphBody& graph, const ImportRequest& request);

/// Makes the graph's inputs. Problems: unbound symbols, unknown dimensions, unsupported types, bindings of symbols that
/// no input has; all of them. Inputs that are initializers too (IR version 3) are no inputs.
Status bind_inputs(const GraphBody& graph, const ImportRequest& request, const BatchChoice& batch, Lowering& lowering);

}  // namespace graphpipe::frontend
