#pragma once
// What the bodies of a graph's nodes read of it.

#include <set>
#include <string>

#include "frontend/model.h"

namespace graphpipe::frontend {

/// All names that a graph and the bodies of its nodes read, and its outputs.
void collect_reads(const GraphBody& body, std::set<std::string>& reads);

/// Those of the bodies of its nodes alone.
std::set<std::string> inner_reads(const GraphBody& body);
/// These, and the outputs: what must keep its name and its elements where nodes are replaced.
std::set<std::string> bound_names(const GraphBody& body);

}  // namespace graphpipe::frontend
