#pragma once
// How many nodes a model has once its local functions are inlined, counted without inlining them.

#include <cstdint>

#include "support/result.h"

namespace graphpipe_onnx {
class ModelProto;
}

namespace graphpipe::frontend {

/// The count, saturating at `limit` + 1 (then an error is returned). A function that calls itself, directly or through
/// others, is an error. Dynamic programming over the call graph: time linear in the file, whatever its expansion.
Result<int64_t> count_expanded_nodes(const graphpipe_onnx::ModelProto& model, int64_t limit);

}  // namespace graphpipe::frontend
