#pragma once
// Protobuf objects -> plain structs. The only steps that see protobuf are this one, libonnx_steps and function_budget.

#include "frontend/model.h"
#include "support/result.h"

namespace graphpipe_onnx {
class ModelProto;
}

namespace graphpipe::frontend {

/// Copies the parsed model (its weights were stripped by the wire scan). All problems at once: sequence or map typed
/// inputs, element counts that do not fit the dims, ranks above 64, dims that are negative or overflow.
Result<Model> read_model(const graphpipe_onnx::ModelProto& proto, size_t slot_count);

}  // namespace graphpipe::frontend
