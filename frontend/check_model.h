#pragma once
// Our own checks of a model: what libonnx's inference and conversion take for granted, and what lowering relies on.

#include "frontend/model.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// All problems at once: a value defined twice (not SSA), a value read before it is defined (unsorted or cyclic),
/// outputs that nothing computes, sparse initializers, attribute lists that are too long. Bodies of If and Loop see
/// the values of the graphs around them.
Status check_model(const Model& model);

}  // namespace graphpipe::frontend
