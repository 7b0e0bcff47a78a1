#pragma once
// Whether the last axis of a tensor is that of its features, by what its readers do with it.

#include <string_view>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Whether a node, of the tensor or of its sum with another tensor of the file, takes each row of the tensor for the
/// features of one token: joins it with others along another axis, normalises it, or multiplies it by a matrix. Modules
/// hardly expand one number for that; a value that they learn for places which are filled up is one.
bool has_features(const GraphBody& body, const Tensor& tensor);

/// "cls_token", "distillation_token", "mask_emb", "latent_queries": names of vectors of features, not of one number.
bool is_name_of_token(std::string_view parameter);

}  // namespace graphpipe::frontend
