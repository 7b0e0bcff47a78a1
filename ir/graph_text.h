#pragma once
// The text form of an operator graph: one line per input, parameter, node and output.
//
//   graphpipe.graph/1
//   i0  %0 = data "image" : f32[B,3,56,56]
//   p0  %w1 = weight trainable "conv.weight" file("model.onnx", 128, 6912) : f32[64,3,3,3]
//   n0  %2 = Conv(%0, %w1) {pads=[1,1,1,1]} : f32[B,64,56,56] from "Conv_12"
//   n1  %3 = ReluGrad(%2, %2) : f32[B,64,56,56] phase I serves n0
//   out model "y" %2
//   gradients 4
//   gradient %2 = %3
//   share p0 %3
//
// %w1 is value 1, which is a parameter. B is the sample count; a dim is c, B, c*B or c*B^p. An absent input is "_".
// The batch kind is written ("@none", "@axis 1", "@mixed") only where it is not what the shape suggests: one dim with
// B makes it the batch axis, several mix, none has no batch. Names of a model are quoted and escaped. Lines that are
// empty or start with '#' are skipped.

#include <string>
#include <string_view>
#include <utility>

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::ir {

/// Lossless for graphs that pass verify_graph: parse_graph(print_graph(g)) == g.
std::string print_graph(const Graph& graph);
/// One line as it stands in print_graph, without its end: what messages and tables show.
std::string print_node(const Graph& graph, NodeId node);
/// "f32[B,64]".
std::string print_type(const TensorType& type);
/// "B", "4*B", "B^2", "64".
std::string print_dim(Dim dim);

/// The batch kind and axis that a shape has where nothing else is said.
std::pair<BatchKind, int> suggested_batch(const Shape& shape);

/// Checks form and references only; verify_graph checks the rest.
/// Errors: kMalformedFile, one per bad line, each with the line's number.
Result<Graph> parse_graph(std::string_view text);

}  // namespace graphpipe::ir
