#include "passes/fuse_linear.h"

#include "passes/expression.h"
#include "passes/readers.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Shape;
using ir::ValueId;

/// One node that may become a Linear.
class LinearFusion {
 public:
  LinearFusion(const Rebuilding& step, const Expressions& parts) : step_(step), parts_(parts) {}

  Result<Replacement> product() const {
    const std::vector<ValueId>& inputs = step_.node.inputs;
    return takes(inputs[0], inputs[1]) ? make(inputs[0], inputs[1], {}, false) : Replacement();
  }

  Result<Replacement> gemm() const {
    const Node& node = step_.node;
    const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : ValueId();
    const bool plain = node.attributes.get_int("transA", 0) == 0 && node.attributes.get_double("alpha", 1) == 1 &&
                       (!bias.valid() || node.attributes.get_double("beta", 1) == 1);
    if (!plain || !takes(node.inputs[0], node.inputs[1]) || (bias.valid() && !is_row(bias))) return Replacement();
    return make(node.inputs[0], node.inputs[1], bias, node.attributes.get_int("transB", 0) != 0);
  }

  /// A Linear without a bias, plus a bias, where this node `id` is the only reader of the Linear.
  Result<Replacement> sum(const Readers& readers, NodeId id) const {
    for (size_t i = 0; i < 2; ++i) {
      const Node* linear = parts_.made_by(step_.node.inputs[i], "Linear");
      const ValueId bias = step_.node.inputs[1 - i];
      if (linear == nullptr || linear->inputs.size() != 2 || !readers.is_only_reader(id, i) || !is_row(bias)) continue;
      // A sum that broadcasts a single column is more than a bias.
      if (parts_.value(step_.node.inputs[i]).type != step_.outputs[0].type) continue;
      // A copy, because nodes move in memory when the graph grows.
      const std::vector<ValueId> inputs = {linear->inputs[0], linear->inputs[1], bias};
      GP_TRY(const ValueId fused, append_like(step_.made, step_.node, "Linear", inputs, linear->attributes));
      return Replacement({fused});
    }
    return Replacement();
  }

 private:
  /// Whether this is rows of samples times a matrix that does not depend on the samples.
  bool takes(ValueId x, ValueId weight) const {
    const ir::Value &rows = parts_.value(x), &matrix = parts_.value(weight);
    return rows.batch != ir::BatchKind::kNone && rows.type.shape.size() >= 2 && rows.type.shape.back().is_fixed() &&
           matrix.batch == ir::BatchKind::kNone && matrix.type.shape.size() == 2;
  }
  /// Whether the value is a bias of the result's rows.
  bool is_row(ValueId value) const {
    const ir::Value& bias = parts_.value(value);
    return bias.batch == ir::BatchKind::kNone && bias.type.shape == Shape{step_.outputs[0].type.shape.back()};
  }
  Result<Replacement> make(ValueId x, ValueId weight, ValueId bias, bool turned) const {
    while (const Node* turn = parts_.made_by(weight, "Transpose")) {
      const std::vector<int64_t> order = turn->attributes.get_ints("perm", {1, 0});
      weight = turn->inputs[0];
      if (order == std::vector<int64_t>{1, 0}) turned = !turned;
    }
    std::vector<ValueId> inputs = {x, weight};
    if (bias.valid()) inputs.push_back(bias);
    GP_TRY(const ValueId fused,
           append_like(step_.made, step_.node, "Linear", std::move(inputs), {{"transB", int64_t{turned}}}));
    return Replacement({fused});
  }

  const Rebuilding& step_;
  const Expressions& parts_;
};

}  // namespace

Result<Graph> fuse_linear(Graph graph, const PassContext&) {
  const Readers readers(graph);
  std::optional<Expressions> parts;
  size_t visited = 0;
  return rebuild(std::move(graph), [&](const Rebuilding& step) -> Result<Replacement> {
    if (!parts) parts.emplace(step.made);
    const NodeId id(visited++);
    const LinearFusion fusion(step, *parts);
    if (step.node.op == "MatMul") return fusion.product();
    if (step.node.op == "Gemm") return fusion.gemm();
    if (step.node.op == "Add") return fusion.sum(readers, id);
    return Replacement();
  });
}

}  // namespace graphpipe::passes
