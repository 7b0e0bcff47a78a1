#pragma once
// Rows of embeddings that look-ups do not train: nn.Embedding(padding_idx=row), which an ONNX file cannot say.

#include "frontend/parameter_rules.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Gives every look-up of a table that a rule "PATTERN padding ROW" names the attribute `padding_row` (ops/index.cpp).
/// Other readers of the table train that row too, as in PyTorch.
/// Errors: kBadParameter for a parameter that no node looks rows up in, and for a row that it does not have.
Status apply_padding_rows(const ParameterRules& rules, ir::Graph& graph);

}  // namespace graphpipe::frontend
