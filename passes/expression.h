#pragma once
// Questions that a pass asks about the arithmetic before a value, to recognise what it computes.

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

/// The columns of each row of a matrix that a condition marks, with respect to the diagonal.
enum class Columns { kLater, kUpToDiagonal };

/// Queries a graph that may grow between two queries; its parameters do not change.
class Expressions {
 public:
  explicit Expressions(const ir::Graph& graph) : graph_(&graph), params_(ir::params_of_values(graph)) {}

  /// The node that computes the value, if it has this op.
  const ir::Node* made_by(ir::ValueId value, std::string_view op) const;
  /// The number that a constant parameter of one element holds, or of elements that are all equal.
  std::optional<double> constant(ir::ValueId value) const;
  /// Whether the value is a float32 mask [.., n, n] of one matrix that, added to scores, keeps those up to the diagonal
  /// of each row: 0 there, and a value that no score outweighs after it. A constant, or chosen by marked_columns().
  bool is_causal_mask(ir::ValueId value) const;
  /// If the value is a condition [.., n, n] of one matrix that marks all columns after, or up to, the diagonal: which.
  /// A constant, a comparison of the numbers of rows and columns, or the contrary of one.
  std::optional<Columns> marked_columns(ir::ValueId condition) const;
  /// Whether the value is this constant, up to the rounding of float32.
  bool is_constant(ir::ValueId value, double number) const;
  /// If the value is `op` of a constant and something else, in either order: that other value and the constant.
  std::optional<std::pair<ir::ValueId, double>> with_constant(ir::ValueId value, std::string_view op) const;
  /// If the value is x * x or x ^ 2: x.
  std::optional<ir::ValueId> square(ir::ValueId value) const;
  /// If the value is the mean of x over its last axis, which is kept: x.
  std::optional<ir::ValueId> row_mean(ir::ValueId value) const;
  /// If the value is sqrt(x): x.
  std::optional<ir::ValueId> square_root(ir::ValueId value) const;
  /// If the value is a / b, or a * reciprocal(b): a and b. In a product the order is unknown: both are returned.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> quotients(ir::ValueId value) const;
  /// Whether a trained parameter is among what the value is computed from.
  bool is_trained(ir::ValueId value) const;
  /// The factors of nested products, left to right.
  std::vector<ir::ValueId> factors(ir::ValueId value) const;

  const ir::Shape& shape(ir::ValueId value) const { return graph_->value(value).type.shape; }
  const ir::Value& value(ir::ValueId id) const { return graph_->value(id); }

 private:
  const ir::Param* constant_param(ir::ValueId value) const;
  std::optional<Columns> constant_columns(ir::ValueId condition) const;
  std::optional<Columns> compared_columns(const ir::Node& comparison) const;
  bool is_chosen_causal_mask(ir::ValueId value) const;
  /// Whether it is the constant 0, 1, .. along this axis, counted from the last, and has size 1 along all others.
  bool counts_along(ir::ValueId value, size_t axis_from_end) const;

  const ir::Graph* graph_;
  IdMap<ir::ValueId, ir::ParamId> params_;
};

}  // namespace graphpipe::passes
