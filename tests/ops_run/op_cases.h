#pragma once
// Turns the examples of the op dictionary into small graphs with input values, forward and gradient.

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/op_def.h"

namespace graphpipe::ops_run {

struct OpCase {
  /// "Add/1": row and example.
  std::string name;
  ir::Graph graph;
  ir::NodeId forward;
  size_t outputs = 0;
  /// Why the graph has no gradient or no node at all; empty where all is well.
  std::string problem;
  /// By graph input: the elements at kCaseSamples samples.
  std::vector<std::vector<double>> values;
  std::vector<int> weighted_outputs, weights, differentiated, updated;
  bool mixes_samples = false;
  int dependence = 0, axis = -1;
};

/// Floating inputs, and attributes named "to", of type f32 become `floating`.
OpCase make_case(const ops::OpDef& row, size_t example, ir::DType floating);

/// The example's node behind one that negates its input 0, which it may overwrite; none where it cannot.
std::optional<ir::Graph> make_overwriting_graph(const ops::OpDef& row, size_t example);

}  // namespace graphpipe::ops_run
