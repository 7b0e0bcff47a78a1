#pragma once
// The names of a graph's values and tensors, and new ones for what a rewrite adds.

#include <set>
#include <string>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Of the inputs, the initializers and the results of the nodes.
std::set<std::string> value_names(const GraphBody& body);

/// The name, with marks behind it where it is taken; it is among the names then.
std::string unused_name(std::set<std::string>& names, std::string name);

}  // namespace graphpipe::frontend
