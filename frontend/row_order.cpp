#include "frontend/row_order.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using Rows = std::optional<int64_t>;

/// Operators of which each row of the result comes from the row of operand 0 at the same place, whatever else they
/// read, as long as they do not work along the axis of the rows.
bool takes_rows_of_first(std::string_view op) {
  constexpr std::array kOps = std::to_array<std::string_view>({"Attention",
                                                               "AveragePool",
                                                               "BatchNormalization",
                                                               "Bernoulli",
                                                               "Conv",
                                                               "ConvTranspose",
                                                               "CumProd",
                                                               "CumSum",
                                                               "DFT",
                                                               "Dropout",
                                                               "Frames",
                                                               "GlobalAveragePool",
                                                               "GlobalMaxPool",
                                                               "GridSample",
                                                               "GRU",
                                                               "GroupNormalization",
                                                               "LRN",
                                                               "LSTM",
                                                               "LayerNormalization",
                                                               "MaxPool",
                                                               "OneHot",
                                                               "Pad",
                                                               "RMSNormalization",
                                                               "RandomNormalLike",
                                                               "RandomUniformLike",
                                                               "Resize",
                                                               "Rotary",
                                                               "Scale",
                                                               "Split",
                                                               "TopK",
                                                               "Transpose",
                                                               "Trilu"});
  return std::ranges::find(kOps, op) != kOps.end();
}

/// Of operators with an axis, those that move rows where their axis is that of the rows.
std::optional<int64_t> axis_of(const ir::Node& node) {
  constexpr std::array kOps = std::to_array<std::string_view>(
      {"Concat", "CumProd", "CumSum", "Gather", "GatherElements", "ScatterElements", "Split"});
  if (node.op == "TopK") return node.attributes.get_int("axis", -1);
  return std::ranges::find(kOps, node.op) != kOps.end() ? std::optional(node.attributes.get_int("axis", 0))
                                                        : std::nullopt;
}

class Finder {
 public:
  Finder(const ir::Graph& graph, const ir::Node& node, const Shape& shape, const std::vector<Rows>& rows)
      : graph_(graph), node_(node), shape_(shape), rows_(rows), axis_(only_batch_axis(shape)) {}

  Rows run() const {
    if (!axis_) return std::nullopt;
    if (shape_[*axis_].factor == 1) return 1;
    const ops::OpDef* op = ops::find_op(node_.op);
    if (op == nullptr || node_.inputs.empty()) return std::nullopt;
    if (op->dependence == ops::Dependence::kSameOrder) return of_same_order();
    if (op->dependence == ops::Dependence::kElement || op->dependence == ops::Dependence::kRepeated)
      return of_aligned();
    if (node_.op == "Concat" || node_.op == "Tile") return of_joined();
    if (node_.op == "Slice") return of_slice();
    if (node_.op == "Gather") return of_gather();
    if (node_.op == "GatherElements" || node_.op == "ScatterElements") return works_along(0) ? Rows() : of_aligned();
    if (node_.op == "MatMul") return of_product();
    if (node_.op == "Gemm") return *axis_ == 0 && node_.attributes.get_int("transA", 0) == 0 ? of_same_axis(0) : Rows();
    const bool is_kept = op->dependence == ops::Dependence::kAlongAxis || takes_rows_of_first(node_.op) ||
                         node_.op.starts_with("Reduce") || node_.op.starts_with("Arg");
    return is_kept && !works_along(0) ? of_same_size(0) : std::nullopt;
  }

 private:
  bool has(size_t input) const { return input < node_.inputs.size() && node_.inputs[input].valid(); }
  const Shape& shape_of(size_t input) const { return graph_.value(node_.inputs[input]).type.shape; }
  Rows rows_of(size_t input) const {
    const Dim dim = shape_of(input)[*only_batch_axis(shape_of(input))];
    return dim.factor == 1 ? Rows(1) : rows_[node_.inputs[input].index()];
  }

  /// Whether the operand has as many rows as the result, on whatever axis.
  bool has_as_many(size_t input) const {
    const auto axis = has(input) ? only_batch_axis(shape_of(input)) : std::nullopt;
    return axis && shape_of(input)[*axis] == shape_[*axis_];
  }

  Rows of_same_size(size_t input) const { return has_as_many(input) ? rows_of(input) : std::nullopt; }

  /// Where the rows of the operand lie on the axis at the same distance from the last.
  bool is_aligned(size_t input) const {
    return has_as_many(input) && *only_batch_axis(shape_of(input)) + shape_.size() == *axis_ + shape_of(input).size();
  }

  Rows of_same_axis(size_t input) const {
    return has_as_many(input) && *only_batch_axis(shape_of(input)) == *axis_ ? rows_of(input) : std::nullopt;
  }

  bool works_along(size_t input) const {
    const std::optional<int64_t> given = axis_of(node_);
    if (!given || !has(input)) return false;
    const Shape& shape = shape_of(input);
    const int64_t axis = *given < 0 ? *given + std::ssize(shape) : *given;
    return axis >= 0 && axis < std::ssize(shape) && !shape[static_cast<size_t>(axis)].is_fixed();
  }

  /// What all operands say that are aligned and known; nothing where they differ.
  Rows of_aligned() const {
    Rows found;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const Rows rows = has(i) && is_aligned(i) ? rows_of(i) : std::nullopt;
      if (found && rows && *found != *rows) return std::nullopt;
      if (rows) found = rows;
    }
    return found;
  }

  Rows of_same_order() const {
    const std::optional<size_t> before = has(0) ? only_batch_axis(shape_of(0)) : std::nullopt;
    const Rows rows = before ? rows_of(0) : std::nullopt;
    if (!rows) return std::nullopt;
    const auto inner = product_from(shape_of(0), *before + 1), inner_now = product_from(shape_, *axis_ + 1);
    int64_t elements = 0;
    if (!inner || !inner_now || __builtin_mul_overflow(*rows, *inner, &elements) || elements % *inner_now != 0)
      return std::nullopt;
    return elements / *inner_now;
  }

  /// Blocks of rows, each with the steps of all samples, one behind the other.
  Rows of_joined() const {
    const size_t count = node_.op == "Tile" ? 1 : node_.inputs.size();
    if (node_.op == "Concat" && !works_along(0)) return of_aligned();
    Rows found;
    for (size_t i = 0; i < count; ++i) {
      const auto axis = has(i) ? only_batch_axis(shape_of(i)) : std::nullopt;
      const Rows rows = axis ? rows_of(i) : std::nullopt;
      if (!rows || (found && *found != *rows)) return std::nullopt;
      found = rows;
    }
    return found;
  }

  Rows of_slice() const {
    if (!has_as_many(0)) return std::nullopt;
    const auto axis = static_cast<int64_t>(*only_batch_axis(shape_of(0)));
    const std::vector<int64_t> axes = node_.attributes.get_ints("axes");
    const bool is_moved = !node_.attributes.has("axes") || std::ranges::any_of(axes, [&](int64_t each) {
      return each == axis || each + std::ssize(shape_of(0)) == axis;
    });
    return is_moved ? std::nullopt : rows_of(0);
  }

  /// Rows of the table's samples, or of the numbers.
  Rows of_gather() const {
    const bool has_table_rows = has(0) && only_batch_axis(shape_of(0));
    if (!has_table_rows) return of_same_size(1);
    return works_along(0) ? std::nullopt : of_same_size(0);
  }

  /// The rows are those of the left operand, the columns those of the right one; the axes in front are those of both.
  Rows of_product() const {
    if (!has(0) || !has(1) || shape_of(0).size() < 2 || shape_of(1).size() < 2) return std::nullopt;
    const size_t from_end = shape_.size() - *axis_;
    if (from_end > 2) return of_aligned();
    const size_t input = from_end == 2 ? 0 : 1;
    return is_aligned(input) ? rows_of(input) : std::nullopt;
  }

  const ir::Graph& graph_;
  const ir::Node& node_;
  const Shape& shape_;
  const std::vector<Rows>& rows_;
  std::optional<size_t> axis_;
};

}  // namespace

std::optional<size_t> only_batch_axis(const Shape& shape) {
  const auto holds = [](Dim dim) { return !dim.is_fixed(); };
  const auto found = std::ranges::find_if(shape, holds);
  if (found == shape.end() || found->power != 1 || std::ranges::count_if(shape, holds) != 1) return std::nullopt;
  return static_cast<size_t>(found - shape.begin());
}

std::optional<int64_t> product_from(const Shape& shape, size_t first) {
  const std::optional<Dim> count = ir::element_count(Shape(shape.begin() + static_cast<ptrdiff_t>(first), shape.end()));
  return count && count->is_fixed() && count->factor > 0 ? std::optional(count->factor) : std::nullopt;
}

std::optional<int64_t> RowOrder::rows_per_step(const ir::Graph& graph, ir::ValueId value) {
  rows_.resize(graph.value_count());
  for (const ir::NodeId id : graph.node_ids()) {
    if (id.index() < next_) continue;
    const ir::Node& node = graph.node(id);
    for (const ir::ValueId output : node.outputs)
      if (output.valid()) rows_[output.index()] = Finder(graph, node, graph.value(output).type.shape, rows_).run();
  }
  next_ = graph.node_count();
  const std::optional<size_t> axis = only_batch_axis(graph.value(value).type.shape);
  return axis && graph.value(value).type.shape[*axis].factor == 1 ? Rows(1) : rows_[value.index()];
}

}  // namespace graphpipe::frontend
