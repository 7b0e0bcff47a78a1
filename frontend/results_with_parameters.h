#pragma once
// Which values of a default export from PyTorch were computed with a parameter, so that another value that its
// optimiser has merged with one of them may have been computed with another parameter that began alike.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Outputs of nodes, and the result of the call that each belongs to, by what torch.export names such results: "mul".
using ResultsByKind = std::map<std::string, std::map<std::string, std::string>, std::less<>>;

/// Products and sums with a parameter and the like, and activations of these or of norms that have parameters: a module
/// that computed an activation twice would take it of two values. `of_parameters`: tensors, and values, of parameters
/// alone. Needs: nodes in the order of their values.
ResultsByKind results_with_parameters(const std::vector<OnnxNode>& nodes, const std::set<std::string>& of_parameters);

}  // namespace graphpipe::frontend
