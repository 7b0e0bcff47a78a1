#pragma once
// Branches and iterations that data decide: they are lowered whatever the data say, and of each result and what stands
// for it otherwise one is taken.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// `yes` where `condition`, one number of bool, is true, else `no`: of what both are, each computed whatever it says.
Result<ir::ValueId> chosen(NodeContext& context, ir::ValueId condition, ir::ValueId yes, ir::ValueId no);
/// Refuses nodes of the graph from `first` on that update what they read: they would do so used or not.
Status expect_no_effect(NodeContext& context, size_t first);

/// Gates before what nodes of a body read from outside of it: where the body is not taken, no gradient goes back
/// through them, whatever its derivative is. While they are closed, the names that it reads are bound to what comes
/// through.
class Gates {
 public:
  /// The body is taken where `condition`, one number of bool, is `taken`.
  Gates(NodeContext& context, ir::ValueId condition, bool taken);

  /// Needs: the body's initializers are bound.
  Status close(const GraphBody& body);
  void open();
  /// A binding with a gate before its value, where the model is trained and a gradient can go there; else as it is.
  Result<Binding> gated(Binding binding);

 private:
  Status close_names(const GraphBody& body);
  Status close_name(const std::string& name);

  NodeContext& context_;
  ir::ValueId condition_;
  bool taken_, is_trained_;
  bool is_prepared_ = false;
  std::vector<std::pair<std::string, Binding>> before_;
  std::set<std::string> own_;
};

}  // namespace graphpipe::frontend
