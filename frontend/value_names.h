#pragma once
// The names of a graph's values and tensors, and what a rewrite adds: new names, and constants.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Of the inputs, the initializers and the results of the nodes.
std::set<std::string> value_names(const GraphBody& body);

/// The name, with marks behind it where it is taken; it is among the names then.
std::string unused_name(std::set<std::string>& names, std::string name);

/// A vector of these numbers, of ONNX's type int64.
Tensor int64_tensor(std::string name, const std::vector<int64_t>& numbers);

}  // namespace graphpipe::frontend
