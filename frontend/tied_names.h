#pragma once
// Names of parameters that a file does not hold, since the module ties them to one that it does.

#include "frontend/parameter_rules.h"
#include "ir/graph.h"

namespace graphpipe::frontend {

/// Gives a parameter the names that rules tie it to ("NAME tie OTHER", over any number of such lines) as aliases, but
/// for those of other parameters. Where several parameters of the file are tied to one absent name, the first has it.
void add_tied_names(ir::Graph& graph, const ParameterRules& rules);

}  // namespace graphpipe::frontend
