#pragma once
// The first elements of a tensor, by which its contents can be told from those of others.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Those in the first `max_bytes` of a float tensor's data, of filled data one. Empty if the data cannot be read.
/// `model_path` and `trusted_root` determine which files may be opened, as in open_weight_file.
std::vector<double> first_elements(const ir::DataSource& data, ir::DType dtype, int64_t max_bytes,
                                   const std::string& model_path, const std::string& trusted_root);

}  // namespace graphpipe::frontend
