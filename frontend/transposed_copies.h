#pragma once
// Tied weights that an exporter's optimisation has parted: a table for the look-ups, and its transpose for the product.

#include <string>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Whether both are float matrices of a file and one holds the other's transposed values, by a sample of their elements
/// in which there are several different ones. False if the data cannot be read. `model_path` and `trusted_root`
/// determine which files may be opened, as in open_weight_file.
bool is_transposed_copy(const ir::Graph& graph, const ir::Param& one, const ir::Param& other,
                        const std::string& model_path, const std::string& trusted_root);

}  // namespace graphpipe::frontend
