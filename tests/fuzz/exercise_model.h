#pragma once
// What `lint` and `plan` do with a model, up to the search: whatever the model, it ends in a result or in problems.

#include <string_view>

#include "frontend/import_onnx.h"

namespace graphpipe::tests {

/// How far a model came.
enum class ModelFate { kRefused, kImported, kPriced };

/// Ends the process (GP_CHECK) where a promise does not hold: problems that are empty or cannot be printed, a graph
/// that its verifier refuses.
/// `crashed`, if not null, tells whether that process crashed.
ModelFate exercise_model(std::string_view bytes, frontend::Isolation isolation, bool* crashed = nullptr);

}  // namespace graphpipe::tests
