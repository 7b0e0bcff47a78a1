#pragma once
#include "ir/model_spec.h"
#include "passes/pass.h"

namespace graphpipe::passes {

/// The axis of `logits` that holds the classes. `label` is the label's value if it is an input of the model. Errors
/// (kBadLoss): the axis is ambiguous, or the requested one (option "axis") is not an axis of the logits.
Result<int> find_class_axis(const ir::Graph& graph, ir::ValueId logits, ir::ValueId label, const ir::LossSpec& spec);

}  // namespace graphpipe::passes
