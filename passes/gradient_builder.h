#pragma once
// The ops::GradientBuilder of differentiate: appends the gradient nodes of one forward node.

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/op_def.h"
#include "passes/pass.h"

namespace graphpipe::passes {

class NodeGradientBuilder final : public ops::GradientBuilder {
 public:
  /// `before` is the graph without gradient nodes: it does not move while `graph` grows. `needs_gradient` tells which
  /// values have something trainable upstream.
  NodeGradientBuilder(const ir::Graph& before, ir::Graph& graph, ir::NodeId forward,
                      const IdMap<ir::ValueId, ir::ValueId>& gradient_of, const IdSet<ir::ValueId>& needs_gradient);

  const ops::NodeView& forward() const override { return view_; }
  ir::ValueId input(size_t i) const override;
  ir::ValueId output(size_t i) const override { return view_.node().outputs.at(i); }
  ir::ValueId output_gradient(size_t i) const override;
  bool wants(size_t i) const override;
  std::vector<ir::ValueId> add(size_t for_input, std::string_view op, std::vector<ir::ValueId> inputs,
                               ir::Attributes attributes) override;
  ir::ValueId reduce_to_input(size_t i, ir::ValueId gradient) override;
  void set_input_gradient(size_t i, ir::ValueId gradient) override;

  /// The contribution to each wanted input's gradient, by input position: one node's own value each.
  /// Errors: a wanted gradient that the entry did not give, or one of another type than its input.
  Result<std::map<size_t, ir::ValueId>> contributions();

 private:
  const ir::Graph& before_;
  ir::Graph& graph_;
  ir::NodeId id_;
  ops::NodeView view_;
  const IdMap<ir::ValueId, ir::ValueId>& gradient_of_;
  const IdSet<ir::ValueId>& needs_gradient_;
  size_t first_node_;
  std::map<size_t, ir::ValueId> given_;
  Diagnostics problems_;
};

}  // namespace graphpipe::passes
