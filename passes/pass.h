#pragma once
// The context of every pass, and a few steps that many passes share.

#include <string>

#include "ir/graph.h"
#include "ir/model_spec.h"
#include "support/result.h"

namespace graphpipe::passes {

struct PassContext {
  ir::LossSpec loss;
  ir::Precision precision = ir::Precision::kFloat32;
  /// Nothing is trained: the model's outputs are kept in addition to the loss, and there are no gradients.
  bool forward_only = false;
  /// Where passes report what they noticed; may be null.
  Diagnostics* notes = nullptr;

  void note(Diagnostic diagnostic) const {
    if (notes) notes->push_back(std::move(diagnostic));
  }
};

/// Appends a node whose output types come from its entry in the op dictionary. Errors: no entry (kUnsupportedOp), or
/// what inference rejects.
Result<ir::NodeId> append_node(ir::Graph& graph, ir::Node node);

/// The first of the node's origins, or an empty name.
ModelText origin_of(const ir::Graph& graph, ir::NodeId node);

}  // namespace graphpipe::passes
