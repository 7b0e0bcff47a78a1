#pragma once
// Distinguishes additive masks, which exporters write as plain float tensors, from learned tables by their contents.

#include <string>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Whether the first 4 KiB of a float tensor's data contain minus infinity or a number below -9999, which attention
/// masks consist of and learned tables never contain. False if the data cannot be read. `model_path` and `trusted_root`
/// determine which files may be opened, as in open_weight_file.
bool holds_mask_values(const ir::DataSource& data, ir::DType dtype, const std::string& model_path,
                       const std::string& trusted_root);

}  // namespace graphpipe::frontend
