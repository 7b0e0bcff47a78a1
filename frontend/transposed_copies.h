#pragma once
// Tied weights that an exporter's optimisation has parted: a table for the look-ups, and its transpose for the product.

#include <string>

#include "frontend/tensor_source.h"
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
std::string sample_of_matrix(const ir::TensorType& type, const ir::DataSource& data, bool turned,
                             const WeightFiles& files);

/// Whether one tensor of the file may be the transposed copy of the other: by what the samples say, if they say
/// something.
bool may_be_transposes(const Tensor& matrix, const Tensor& copy, TensorSource& tensors, const WeightFiles& files);

}  // namespace graphpipe::frontend
