#pragma once
// The dropout of attention, which PyTorch's exporter writes as a Dropout without its mode of training, so that its
// optimiser takes it for the identity and removes it. What the softmax was exported from still says it:
// scaled_dot_product_attention(%q, %k, %v, None, 0.1).

#include <string>

#include "frontend/model.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// The probability with which an attention drops that was exported from this call; 0 for other calls.
double attention_dropout(const std::string& exported_from);

/// Puts a Dropout behind the softmax of each such call that has none, and notes it once. Modules that evaluate pass a
/// probability of 0.
void restore_dropout(GraphBody& body, Diagnostics& notes);

}  // namespace graphpipe::frontend
