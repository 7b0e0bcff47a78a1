#pragma once
// Finds the batch among the inputs' dimensions and gives every other dimension a size.

#include <set>
#include <string>

#include "frontend/lowering.h"

namespace graphpipe::frontend {

struct BatchChoice {
  /// The symbol that is the batch; empty if a fixed first dimension is re-bound.
  std::string symbol;
  /// The fixed batch that is re-bound, or 0.
  int64_t traced = 0;
  /// The inputs whose second dimension is the batch: sequences and first states that LSTM, GRU and RNN read.
  std::set<std::string> time_first;
};

/// The batch is the symbol that a binding of size 0 names, else the first input's symbolic first dimension, else the
/// first dimension of the first input that has one, a fixed size that other inputs may share. If a recurrent node reads
/// an input directly, ONNX determines which dimension is the batch: the second one. If the file describes a single
/// sample, there is none.
BatchChoice choose_batch(const GraphBody& graph, const ImportRequest& request);

/// Creates the graph's inputs. Reports all problems: unbound symbols, unknown dimensions, unsupported types, bindings
/// of symbols that no input has. Inputs that are also initializers (IR version 3) do not count as inputs.
Status bind_inputs(const GraphBody& graph, const ImportRequest& request, const BatchChoice& batch, Lowering& lowering);

}  // namespace graphpipe::frontend
