#pragma once
// Removes nodes and parameters that shape arithmetic leaves behind and no output needs.

#include <map>

#include "frontend/lowering.h"

namespace graphpipe::frontend {

struct Trimmed {
  ir::Graph graph;
  std::map<ir::ParamId, ParamOrigin> origins;
};

/// Keeps what the outputs need, and all inputs. Ids become dense again, in the same order.
Trimmed drop_unused(const ir::Graph& graph, const std::map<ir::ParamId, ParamOrigin>& origins);

}  // namespace graphpipe::frontend
