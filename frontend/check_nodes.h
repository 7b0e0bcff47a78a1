#pragma once
// Checks nodes against the schemas of their operators: what ONNX's library takes for granted, and what lowering relies
// on.

#include "frontend/model.h"
#include "support/result.h"

namespace graphpipe_onnx {
class ModelProto;
}

namespace graphpipe::frontend {

/// Checks every node of the standard domain, also in bodies of nodes and in local functions: the numbers of inputs and
/// outputs, required ones, the types of attributes, and that axes are within the range of possible ranks. Operators
/// that the registry has, but not in the model's opset, are problems too; operators that it does not have at all are
/// left to lowering, which names them. Reports all problems, at most kMaxProblems.
Status check_nodes(const graphpipe_onnx::ModelProto& model);

/// Whether ONNX has an operator of this name in the standard domain, in any opset that the library knows.
bool is_onnx_operator(const std::string& op);

}  // namespace graphpipe::frontend
