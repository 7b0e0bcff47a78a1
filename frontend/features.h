#pragma once
// Whether the last axis of a tensor is that of its features, by what its readers do with it.

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Whether a node, of the tensor or of its sum with another tensor of the file, takes each row of the tensor for the
/// features of one token: joins it with others along another axis, normalises it, or multiplies it by a matrix. No
/// module expands one number for that.
bool has_features(const GraphBody& body, const Tensor& tensor);

}  // namespace graphpipe::frontend
