#pragma once
// Which nodes of a file no gradient passes.

#include <set>
#include <string>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Whether no gradient passes the node, whatever reads it: comparisons, places, rounding, whole numbers, and what is
/// detached.
bool ends_gradients(const OnnxNode& node);

/// The values that gradients of the outputs may reach. Needs: nodes in the order of their values.
std::set<std::string> reached_by_gradients(const GraphBody& body);

}  // namespace graphpipe::frontend
