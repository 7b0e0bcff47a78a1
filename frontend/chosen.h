#pragma once
// Data-dependent branches and iterations: all of them are lowered unconditionally, and each result is selected between
// what was computed and its alternative.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// `yes` if `condition`, a scalar bool, is true, otherwise `no`; both are computed unconditionally.
Result<ir::ValueId> chosen(NodeContext& context, ir::ValueId condition, ir::ValueId yes, ir::ValueId no);
/// Rejects nodes of the graph from `first` on that update what they read: they would do so even if not selected.
Status expect_no_effect(NodeContext& context, size_t first);

/// Gates in front of what nodes of a body read from outside: if the body is not taken, no gradient flows back through
/// them, whatever its derivative is. While the gates are closed, the names that the body reads are bound to the gates'
/// outputs.
class Gates {
 public:
  /// The body is taken if `condition`, a scalar bool, equals `taken`.
  Gates(NodeContext& context, ir::ValueId condition, bool taken);

  /// Needs: the body's initializers are bound.
  Status close(const GraphBody& body);
  void open();
  /// The binding with a gate before its value, if the model is trained and a gradient can reach it; otherwise
  /// unchanged.
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
