#pragma once
// Parameters of the module that an exporter's optimiser has given the tensor of another, since they began with equal
// values, or has removed, since they began as zeros (PyTorch's default export, of a module that is not trained yet).
// The calls that nodes were exported from say which parameters they take.

#include <string>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// Their names, each once, in the order of the nodes. Empty where the file says of no call which parameters it takes.
std::vector<std::string> merged_parameters(const GraphBody& body, const ExportSignature& signature);

/// Initializers with names of TorchScript's exporter for which it has put further ones that had equal values:
/// transposed weights, of which nothing says whether the module ties them.
std::vector<std::string> merged_copies(const GraphBody& body);

}  // namespace graphpipe::frontend
