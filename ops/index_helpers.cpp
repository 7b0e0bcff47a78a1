#include "ops/index_helpers.h"

namespace graphpipe::ops {
namespace {

/// Makes negative indices non-negative. `indices` is a name.
std::string counted_from_end(const Emitter& emitter, std::string_view indices, ir::Dim dim) {
  return text(indices, ".where(", indices, ".ge(0), ", indices, ".add(", emitter.dim(dim), "))");
}

}  // namespace

std::string long_indices(const Emitter& emitter, size_t i) {
  return emitter.node().input(i).type.dtype == ir::DType::kInt64 ? emitter.in(i) : emitter.in(i) + ".to(at::kLong)";
}

Mixing mixing_along(const ir::Shape& shape, size_t axis) {
  return shape[axis].is_fixed() ? Mixing::kNone : Mixing::kMixes;
}

Result<int> element_axis(const NodeView& node, const ir::Shape& data, const ir::Shape& indices) {
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, data.size()));
  if (indices.size() != data.size()) return bad_model(node, "needs data and indices of one rank");
  for (size_t i = 0; i < data.size(); ++i) {
    if (static_cast<int>(i) == axis || data[i] == indices[i]) continue;
    if (data[i].is_fixed() && indices[i].is_fixed() && indices[i].factor <= data[i].factor) continue;
    return bad_model(node, text("cannot index ", shape_text(data), " by ", shape_text(indices)));
  }
  return axis;
}

int checked_axis(const NodeView& node, const ir::Shape& shape) {
  return axis_attribute(node, "axis", 0, shape.size()).value();
}

double index_scratch(const NodeView& node, size_t i, Samples samples, bool masked) {
  constexpr double kLong = 8, kMask = 1;
  const double cast = node.input(i).type.dtype == ir::DType::kInt64 ? 0 : kLong;
  return elements(node.input(i), samples) * (cast + kLong + (masked ? kLong + kMask : 0));
}

Work indexed_copy_work(const NodeView& node, Samples samples) {
  Work work = copy_work(node, samples);
  work.scratch = index_scratch(node, 1, samples, true);
  return work;
}

std::string positive_indices(Emitter& emitter, size_t i, const ir::Shape& data, int axis) {
  const std::string raw = emitter.local("raw"), indices = emitter.local("indices");
  emitter.statement(text("at::Tensor ", raw, " = ", long_indices(emitter, i), ";"), "ATen/core/Tensor.h");
  emitter.statement(
      text("at::Tensor ", indices, " = ", counted_from_end(emitter, raw, data[static_cast<size_t>(axis)]), ";"),
      "ATen/core/Tensor.h");
  return indices;
}

}  // namespace graphpipe::ops
