#pragma once
// Shape arithmetic leaves nodes and parameters behind that no output needs.

#include <map>

#include "frontend/lowering.h"

namespace graphpipe::frontend {

struct Trimmed {
  ir::Graph graph;
  std::map<ir::ParamId, ParamOrigin> origins;
};

/// Keeps what the outputs need, and all inputs. Ids are dense again and in the same order.
Trimmed drop_unused(const ir::Graph& graph, const std::map<ir::ParamId, ParamOrigin>& origins);

}  // namespace graphpipe::frontend
