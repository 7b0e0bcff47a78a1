#pragma once
// Who reads the values of a graph that a pass rebuilds; the queries refer to nodes of the old graph, in order.

#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

/// How many times each value of a graph is read, by nodes and as an output.
class Readers {
 public:
  explicit Readers(const ir::Graph& graph);
  /// Whether this node is the value's only reader, once. Needs: a node of the graph; absent inputs have no reader.
  bool is_only_reader(ir::NodeId node, size_t input) const { return alone_[node.index()][input]; }

 private:
  std::vector<std::vector<bool>> alone_;
};

}  // namespace graphpipe::passes
