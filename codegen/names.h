#pragma once
#include "codegen/source_file.h"
#include "ir/graph.h"

namespace graphpipe::codegen {

/// names.json: the full origins of nodes and the names of parameters and inputs, which generated comments shorten and
/// clean. {"schema": "graphpipe-names 1", "nodes": {"12": {"op": ..., "phase": "F", "origins": [...]}, ...},
/// "parameters": {"5": ...}, "inputs": {"0": ...}}; keys are node ids and value ids.
SourceFile write_names(const ir::Graph& graph);

}  // namespace graphpipe::codegen
