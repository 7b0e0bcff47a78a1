#pragma once
// Which nodes of a file no gradient passes.

#include <set>
#include <string>
#include <string_view>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Whether no gradient passes the node, whatever reads it: comparisons, places, rounding, casts to integers, and what is
/// detached.
bool ends_gradients(const OnnxNode& node);

/// The values that gradients of the outputs may reach. Needs: nodes in the order of their values.
std::set<std::string> reached_by_gradients(const GraphBody& body);

/// Whether gradients may reach the value at a node whose line of code does not hold this call: what the module computes
/// on another line it may compute without gradients. Needs: as above.
bool may_have_no_gradient(const GraphBody& body, const std::string& value, std::string_view call);

}  // namespace graphpipe::frontend
