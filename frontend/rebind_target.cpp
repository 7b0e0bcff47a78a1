#include "frontend/rebind_target.h"

#include <algorithm>
#include <array>

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;

/// Of the fixed dims from `first` on; nothing where one is not fixed, or where there are too many elements.
std::optional<int64_t> product_from(const Shape& shape, size_t first) {
  const std::optional<Dim> count = ir::element_count(Shape(shape.begin() + static_cast<ptrdiff_t>(first), shape.end()));
  return count && count->is_fixed() && count->factor > 0 ? std::optional(count->factor) : std::nullopt;
}

/// The axis of the batch; nothing where there is none, or where others hold it too.
std::optional<size_t> only_batch_axis(const Shape& shape) {
  const auto holds = [](Dim dim) { return !dim.is_fixed(); };
  const auto found = std::ranges::find_if(shape, holds);
  if (found == shape.end() || found->power != 1 || std::ranges::count_if(shape, holds) != 1) return std::nullopt;
  return static_cast<size_t>(found - shape.begin());
}

/// Operators that leave the rows of operand 0 where they are, and take each by itself.
bool keeps_rows(const ir::Node& node) {
  constexpr std::array<std::string_view, 4> kOps = {"MatMul", "Gemm", "LayerNormalization", "RMSNormalization"};
  return std::ranges::find(kOps, node.op) != kOps.end() && node.attributes.get_int("transA", 0) == 0;
}

std::optional<int64_t> find_rows(const ir::Graph& graph, ir::ValueId value, int depth) {
  constexpr int kMaxDepth = 64;
  const Shape& shape = graph.value(value).type.shape;
  const std::optional<size_t> axis = only_batch_axis(shape);
  if (!axis || depth > kMaxDepth) return std::nullopt;
  if (shape[*axis].factor == 1) return 1;
  const ir::NodeId producer = graph.value(value).producer;
  if (!producer.valid()) return std::nullopt;
  const ir::Node& node = graph.node(producer);
  const ops::OpDef* op = ops::find_op(node.op);
  if (op == nullptr || node.inputs.empty()) return std::nullopt;
  ir::ValueId from = node.inputs[0];
  if (op->dependence == ops::Dependence::kElement) {
    const auto same = std::ranges::find_if(
        node.inputs, [&](ir::ValueId input) { return input.valid() && graph.value(input).type.shape == shape; });
    if (same == node.inputs.end()) return std::nullopt;
    from = *same;
  }
  if (!from.valid()) return std::nullopt;
  const Shape& before = graph.value(from).type.shape;
  const std::optional<size_t> axis_before = only_batch_axis(before);
  const std::optional<int64_t> rows = find_rows(graph, from, depth + 1);
  if (!axis_before || !rows) return std::nullopt;
  if (op->dependence == ops::Dependence::kSameOrder) {
    const auto inner = product_from(before, *axis_before + 1), inner_now = product_from(shape, *axis + 1);
    if (!inner || !inner_now || *rows * *inner % *inner_now != 0) return std::nullopt;
    return *rows * *inner / *inner_now;
  }
  const bool is_kept = op->dependence == ops::Dependence::kElement || op->dependence == ops::Dependence::kAlongAxis ||
                       node.op == "Transpose" ||
                       (keeps_rows(node) && before.size() == shape.size() && *axis + 1 < shape.size());
  return is_kept && before[*axis_before] == shape[*axis] ? rows : std::nullopt;
}

/// The axis of the target that takes `traced` steps over so many elements.
std::optional<size_t> axis_of_steps(const Shape& target, int64_t step, int64_t traced) {
  for (size_t axis = 0; axis < target.size(); ++axis) {
    const auto inner = product_from(target, axis + 1);
    int64_t all = 0, needed = 0;
    if (!inner || __builtin_mul_overflow(*inner, target[axis].factor, &all) ||
        __builtin_mul_overflow(step, traced, &needed))
      return std::nullopt;
    if (step % *inner == 0 && all % needed == 0) return axis;
  }
  return std::nullopt;
}

/// The target at the traced batch, without a wildcard; nothing where it holds the batch already, or is no shape.
std::optional<Shape> traced_target(const Shape& from, const Shape& target, int64_t traced) {
  Shape at_traced = target;
  int64_t total = 1, known = 1;
  for (const Dim dim : from)
    if (__builtin_mul_overflow(total, ir::size_at(dim, Samples(traced)).value_or(0), &total)) return std::nullopt;
  for (const Dim dim : target) {
    if (!dim.is_fixed()) return std::nullopt;
    if (dim.factor != -1 && (dim.factor < 1 || __builtin_mul_overflow(known, dim.factor, &known))) return std::nullopt;
  }
  if (std::ranges::count(target, Dim::fixed(-1)) > 1 || total <= 0 || total % known != 0) return std::nullopt;
  std::ranges::replace(at_traced, Dim::fixed(-1), Dim::fixed(total / known));
  return product_from(at_traced, 0) == total ? std::optional(at_traced) : std::nullopt;
}

/// The batch is the first axis, and the leading target dim equals the leading traced size, or the product of the first
/// few: rows stay rows. A batch of one takes no steps, so nothing else is known of it.
std::optional<size_t> axis_of_rows(const Shape& from, const Shape& target, int64_t traced) {
  if (target.empty() || from.empty() || from[0].power != 1 || !target[0].is_fixed()) return std::nullopt;
  const int64_t leading = ir::size_at(from[0], Samples(traced)).value_or(0);
  if (leading <= 0) return std::nullopt;
  int64_t joined = leading;
  for (size_t i = 1; i < from.size() && joined < target[0].factor && from[i].is_fixed(); ++i)
    if (__builtin_mul_overflow(joined, from[i].factor, &joined)) return std::nullopt;
  const bool joins = target[0].factor == joined;
  const bool splits = target[0].factor > 0 && target[0].factor % traced == 0 && leading % target[0].factor == 0;
  return joins || splits ? std::optional<size_t>(0) : std::nullopt;
}

std::optional<size_t> axis_for_batch(NodeContext& context, const Shape& target, int64_t traced) {
  const Shape& from = context.type(0).shape;
  const std::optional<size_t> batch = only_batch_axis(from);
  if (traced == 1 || !batch) return axis_of_rows(from, target, traced);
  const std::optional<Shape> at_traced = traced_target(from, target, traced);
  const std::optional<int64_t> inner = product_from(from, *batch + 1);
  if (!at_traced || !inner) return std::nullopt;
  const ir::ValueId value = context.input(0).value;
  const auto rows = value.valid() ? rows_per_step(context.lowering().graph(), value) : std::nullopt;
  if (rows) return axis_of_steps(*at_traced, *rows * *inner, traced);
  // Rows of a sample that lie together are usual.
  const auto together = axis_of_steps(*at_traced, from[*batch].factor * *inner, traced);
  return together ? together : axis_of_steps(*at_traced, *inner, traced);
}

}  // namespace

std::optional<int64_t> rows_per_step(const ir::Graph& graph, ir::ValueId value) { return find_rows(graph, value, 0); }

void rebind_target(NodeContext& context, Shape& target) {
  const int64_t traced = context.lowering().traced_batch();
  if (traced == 0) return;
  const std::optional<size_t> axis = axis_for_batch(context, target, traced);
  if (!axis || target[*axis] == Dim::fixed(-1)) return;
  target[*axis] = Dim::batch(target[*axis].factor / traced);
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its target held the batch of ", traced, " as a constant; it follows the batch now"),
               "export with a named batch axis to be sure");
}

}  // namespace graphpipe::frontend
