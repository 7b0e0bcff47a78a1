#pragma once
// Tells additive masks, which exporters write as plain float tensors, from learned tables: by what they hold.

#include <string>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Whether the first 4 KiB of a float tensor's data hold minus infinity or a number below -9999, which attention masks
/// are made of and no learned table holds. False where the data cannot be read. `model_path` and `trusted_root` say
/// which files may be opened, as in open_weight_file.
bool holds_mask_values(const ir::DataSource& data, ir::DType dtype, const std::string& model_path,
                       const std::string& trusted_root);

}  // namespace graphpipe::frontend
