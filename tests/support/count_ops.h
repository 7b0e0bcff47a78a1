#pragma once
// How often an op stands in a graph.

#include <string_view>

#include "ir/graph.h"

namespace graphpipe::testing {

inline size_t count_ops(const ir::Graph& graph, std::string_view op) {
  size_t count = 0;
  for (const ir::NodeId id : graph.node_ids()) count += graph.node(id).op == op;
  return count;
}

}  // namespace graphpipe::testing
