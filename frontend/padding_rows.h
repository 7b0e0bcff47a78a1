#pragma once
// Rows of embeddings that look-ups do not train: nn.Embedding(padding_idx=row), which ONNX cannot express.

#include "frontend/parameter_rules.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Sets the attribute `padding_row` (ops/index.cpp) on every look-up of a table that a rule "PATTERN padding ROW"
/// matches. Other readers of the table train that row too, as in PyTorch. Errors: kBadParameter for a parameter in
/// which no node looks up rows, and for a row that it does not have.
Status apply_padding_rows(const ParameterRules& rules, ir::Graph& graph);

}  // namespace graphpipe::frontend
