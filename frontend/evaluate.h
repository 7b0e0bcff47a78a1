#pragma once
// Computes ONNX nodes whose inputs are known: the shape arithmetic of exported graphs.

#include <optional>
#include <span>

#include "frontend/known.h"
#include "frontend/model.h"

namespace graphpipe::frontend {

/// The node's single output, or nullopt if the op has no rule here, a required input is null, the result does not have
/// the form factor * B^power, or it has more than kMaxKnownElements different elements. Absent optional inputs are
/// null. The node is of the internal opset and was checked against its schema; invalid operands still only give
/// nullopt.
std::optional<Known> evaluate(const OnnxNode& node, std::span<const Known* const> inputs);

/// Whether all have the same type. Needs: none is null.
bool have_one_type(std::span<const Known* const> inputs);

/// Ops that compute element by element (evaluate_elementwise.cpp) and ops that move elements (evaluate_shape.cpp).
std::optional<Known> evaluate_elementwise(const OnnxNode& node, std::span<const Known* const> inputs);
std::optional<Known> evaluate_movement(const OnnxNode& node, std::span<const Known* const> inputs);

}  // namespace graphpipe::frontend
