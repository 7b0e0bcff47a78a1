#pragma once
// Tied weights that an exporter's optimisation has parted: a table for the look-ups, and its transpose for the product.

#include <string>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// Which files of weights may be opened, as in open_weight_file.
struct WeightFiles {
  const std::string& model_path;
  const std::string& trusted_root;
};

/// A text by which a float matrix and a transposed copy of it are known: their type, their sides and a sample of their
/// values, of the matrix in its own order (`turned` false), of the copy in that of the matrix. Empty for what is no
/// matrix, cannot be read, or holds few different values, as fresh biases and norms do.
std::string sample_of_matrix(const ir::Graph& graph, const ir::Param& param, bool turned, const WeightFiles& files);

}  // namespace graphpipe::frontend
