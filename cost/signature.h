#pragma once
// The name under which an operator is measured: nodes with equal signatures have equal costs.

#include <string>

#include "ir/graph.h"

namespace graphpipe::cost {

/// "Relu(f32[B,64])", "Softmax{axis=1}(f32[B,10])": operator, attributes, input types.
std::string op_signature(const ir::Graph& graph, const ir::Node& node);

}  // namespace graphpipe::cost
