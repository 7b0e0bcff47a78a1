#pragma once
// Operators that have no entry here but a function body in ONNX's schema, such as Attention: a body may depend on the
// types of the operands, so it is built by ONNX's library for each node.

#include <optional>
#include <string>
#include <vector>

#include "frontend/import_onnx.h"

namespace graphpipe_onnx {
class AttributeProto;
class ModelProto;
class NodeProto;
}  // namespace graphpipe_onnx

namespace graphpipe::frontend {

/// Adds to the model the types that ONNX's library infers. Returns what the library throws: a model that it cannot
/// infer may still be lowered. Throws std::bad_alloc.
std::optional<std::string> infer_shapes(graphpipe_onnx::ModelProto& model);

/// Adds the attributes for which the call uses defaults: a body refers to those of its call, and the inliner drops
/// references to missing ones.
void spell_out(graphpipe_onnx::NodeProto& call, const std::vector<graphpipe_onnx::AttributeProto>& defaults);

/// Replaces each such operator, in bodies too, by its body; in time proportional to the model. An operator whose body
/// cannot be built stays, and lowering rejects it by name, as all do in a model that would exceed
/// limits.expanded_nodes. Names in a body begin with the first 100 bytes of the name of the call's first output. Throws
/// std::bad_alloc.
void expand_schema_functions(graphpipe_onnx::ModelProto& model, const Limits& limits);

}  // namespace graphpipe::frontend
