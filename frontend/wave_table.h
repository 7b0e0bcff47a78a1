#pragma once
// Distinguishes tables of sines and cosines, as Transformers encode positions by, from learned ones by their contents.
// A module holds them as buffers or as parameters that do not train (Whisper, MAE, DiT, PatchTST), which not every
// exported file says.

#include <string>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Whether the first rows of a float tensor along its last axis are sines and cosines of as many angles, in any order:
/// no element is above 1, and the squares of each row have half their number for their sum. Rows of zeros, as of tokens
/// without a place, may stand between them. False if the data cannot be read.
bool holds_waves(const ir::TensorType& type, const ir::DataSource& data, const std::string& model_path,
                 const std::string& trusted_root);

}  // namespace graphpipe::frontend
