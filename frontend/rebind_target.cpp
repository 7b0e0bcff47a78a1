#include "frontend/rebind_target.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "frontend/row_order.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;

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

/// The axes of the target that may take the steps of the batch, where each sample has so many rows, of `inner`
/// elements, in an order that is not known.
std::vector<size_t> possible_axes(const Shape& target, int64_t rows, int64_t inner, int64_t traced) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < target.size(); ++axis) {
    const auto inside = product_from(target, axis + 1);
    if (!inside) return {};
    const int64_t common = std::gcd(*inside, inner);
    // The fewest rows of a sample that fill whole places of the axis.
    const int64_t places = inner / common;
    int64_t needed = 0;
    if (__builtin_mul_overflow(places, traced, &needed)) continue;
    if (rows % (*inside / common) == 0 && target[axis].factor % needed == 0) axes.push_back(axis);
  }
  return axes;
}

std::string shape_text(const Shape& shape) {
  std::string list;
  for (const Dim dim : shape) list += text(list.empty() ? "[" : ", ", dim.factor);
  return list + "]";
}

Result<std::optional<size_t>> axis_for_batch(NodeContext& context, const Shape& target, int64_t traced) {
  const Shape& from = context.type(0).shape;
  const std::optional<size_t> batch = only_batch_axis(from);
  if (traced == 1 || !batch) return axis_of_rows(from, target, traced);
  const std::optional<Shape> at_traced = traced_target(from, target, traced);
  const std::optional<int64_t> inner = product_from(from, *batch + 1);
  if (!at_traced || !inner) return std::optional<size_t>();
  const ir::ValueId value = context.input(0).value;
  const auto rows = value.valid() ? context.lowering().rows_per_step(value) : std::nullopt;
  if (rows) return axis_of_steps(*at_traced, *rows * *inner, traced);
  const std::vector<size_t> axes = possible_axes(*at_traced, from[*batch].factor, *inner, traced);
  if (axes.size() > 1)
    return context.problem(Code::kBatchNotFound,
                           text("its target, ", shape_text(*at_traced), ", may hold the batch of ", traced, " on axis ",
                                axes[0], " or ", axes[1], ": each sample has ", from[*batch].factor,
                                " rows of its input, and the nodes before do not say ", "whether they lie together"),
                           text(kExportRecipe, ", or with graphpipe.export"));
  return axes.empty() ? std::optional<size_t>() : axes[0];
}

}  // namespace

Status rebind_target(NodeContext& context, Shape& target) {
  const int64_t traced = context.lowering().traced_batch();
  if (traced == 0) return Ok{};
  GP_TRY(const std::optional<size_t> axis, axis_for_batch(context, target, traced));
  if (!axis || target[*axis] == Dim::fixed(-1)) return Ok{};
  target[*axis] = Dim::batch(target[*axis].factor / traced);
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its target held the batch of ", traced, " as a constant; it follows the batch now"),
               "export with a named batch axis to be sure");
  return Ok{};
}

}  // namespace graphpipe::frontend
