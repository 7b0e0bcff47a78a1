#pragma once
// Which parameters of the module the file tells of.

#include <set>
#include <string>

#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// Those that calls of nodes take, and that notes of the exporter's optimiser name.
std::set<std::string> told_parameters(const GraphBody& body, const ExportSignature& signature);

}  // namespace graphpipe::frontend
