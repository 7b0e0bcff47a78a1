// Ops that move, add or drop axes: their constant operands become attributes whose dims may hold the batch.

#include <algorithm>
#include <numeric>

#include "frontend/node_context.h"
#include "frontend/rebind_target.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;

/// a / b if it is a whole multiple at every sample count.
std::optional<Dim> quotient(Dim a, Dim b) {
  if (b.factor == 0 || a.power < b.power || a.factor % b.factor != 0) return std::nullopt;
  return Dim{a.factor / b.factor, a.power - b.power};
}

Status emit_reshape(NodeContext& context, Shape target) {
  if (target == context.type(0).shape) {
    context.bind_alias();
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  const bool is_empty = std::ranges::any_of(target, [](Dim dim) { return dim.factor == 0; });
  ir::Attributes attributes{{"shape", std::move(target)}};
  if (is_empty) attributes.set("allowzero", int64_t{1});  // 0 is a size, not a copy
  return context.emit_outputs("Reshape", {input}, std::move(attributes));
}

Status lower_reshape(NodeContext& context) {
  GP_TRY(Shape target, reshape_target(context));
  return emit_reshape(context, std::move(target));
}

Status lower_flatten(NodeContext& context) {
  const Shape& from = context.type(0).shape;
  int64_t axis = context.int_attribute("axis", 1);
  const auto rank = static_cast<int64_t>(from.size());
  if (axis < -rank || axis > rank) return context.problem(Code::kBadModel, "its axis is out of range", "export again");
  if (axis < 0) axis += rank;
  const std::optional<Dim> left = ir::element_count(Shape(from.begin(), from.begin() + axis));
  const std::optional<Dim> right = ir::element_count(Shape(from.begin() + axis, from.end()));
  if (!left || !right) return context.problem(Code::kUnresolvedShape, "its sides are too large", "use smaller sizes");
  return emit_reshape(context, {*left, *right});
}

/// An axis that contains the batch only expands to itself: if the file has its traced size, the batch is meant.
void rebind_expand(NodeContext& context, Shape& target) {
  const int64_t traced = context.lowering().traced_batch();
  const Shape& from = context.type(0).shape;
  if (traced == 0) return;
  for (size_t i = 0; i < from.size() && i < target.size(); ++i) {
    const Dim dim = from[from.size() - 1 - i];
    Dim& wanted = target[target.size() - 1 - i];
    if (!dim.is_fixed() && wanted.is_fixed() && ir::size_at(dim, Samples(traced)) == wanted.factor) wanted = dim;
  }
}

/// A constant whose elements are all equal, such as the zeros of an LSTM's initial state, and that has the traced batch
/// where the target has the batch, is expanded to the size of the target at every batch. Returns whether it was one.
bool rebind_filled(NodeContext& context, const Shape& target) {
  const int64_t traced = context.lowering().traced_batch();
  const Known* known = context.known(0);
  if (traced == 0 || known == nullptr || !known->uniform || context.input(0).leaf) return false;
  Known filled = *known;
  bool rebound = false;
  for (size_t i = 0; i < filled.shape.size() && i < target.size(); ++i) {
    Dim& dim = filled.shape[filled.shape.size() - 1 - i];
    const Dim wanted = target[target.size() - 1 - i];
    if (wanted.is_fixed() || !dim.is_fixed() || ir::size_at(wanted, Samples(traced)) != dim.factor) continue;
    dim = wanted;
    rebound = true;
  }
  const std::optional<Shape> shape = broadcast(filled.shape, target);
  if (!rebound || !shape) return false;
  filled.shape = *shape;
  Binding binding;
  binding.type = {filled.dtype, filled.shape};
  binding.known = std::move(filled);
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return true;
}

Status lower_expand(NodeContext& context) {
  GP_TRY(Shape target, context.dims(1, "target shape"));
  rebind_expand(context, target);
  if (rebind_filled(context, target)) return Ok{};
  context.lowering().suspect_batch(context.node(), target);
  const std::optional<Shape> shape = broadcast(context.type(0).shape, target);
  if (!shape || std::any_of(shape->begin(), shape->end(), [](Dim dim) { return dim.factor < 0; }))
    return context.problem(Code::kUnresolvedShape, "its input does not broadcast to the target shape",
                           "export with a named batch axis");
  if (*shape == context.type(0).shape) {
    context.bind_alias();
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Expand", {input}, {{"shape", *shape}});
}

Status lower_unsqueeze(NodeContext& context) {
  GP_TRY(const std::vector<int64_t> given, context.integers(1, "axes"));
  GP_TRY(std::vector<int64_t> axes, context.axes(given, context.rank(0) + given.size()));
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Unsqueeze", {input}, {{"axes", std::move(axes)}});
}

Status lower_squeeze(NodeContext& context) {
  std::vector<int64_t> axes;
  if (context.has_input(1)) {
    GP_TRY(const std::vector<int64_t> given, context.integers(1, "axes"));
    GP_TRY(axes, context.axes(given, context.rank(0)));
    // torch.squeeze ignores an axis whose size is not 1, but its exporter writes the axis anyway.
    if (context.lowering().from_torch())
      std::erase_if(axes,
                    [&](int64_t axis) { return context.type(0).shape[static_cast<size_t>(axis)] != Dim::fixed(1); });
  } else {
    const Shape& from = context.type(0).shape;
    for (size_t i = 0; i < from.size(); ++i)
      if (from[i] == Dim::fixed(1)) axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) {
    context.bind_alias();
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Squeeze", {input}, {{"axes", std::move(axes)}});
}

Status lower_transpose(NodeContext& context) {
  GP_TRY(std::vector<int64_t> perm, context.permutation(context.rank(0)));
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Transpose", {input}, {{"perm", std::move(perm)}});
}

/// Repeats `value` along an axis of `size` elements a batch-dependent number of times: the copies form an axis of their
/// own, which is then joined with it. So the samples, or whole copies of them, come first in the axis.
Result<ir::ValueId> repeat_by_batch(NodeContext& context, ir::ValueId value, size_t axis, Dim times) {
  const auto at = static_cast<int64_t>(axis);
  Shape shape = context.lowering().graph().value(value).type.shape;
  const std::optional<Dim> joined = ir::element_count({times, shape[axis]});
  if (!joined || !shape[axis].is_fixed())
    return context.problem(Code::kUnresolvedShape, "repeats the batch axis by the batch size",
                           "check which axis is the batch");
  if (shape[axis] == Dim::fixed(1)) {
    shape[axis] = times;
    GP_TRY(const auto expanded, context.emit("Expand", {value}, {{"shape", std::move(shape)}}));
    return expanded.front();
  }
  GP_TRY(const auto apart, context.emit("Unsqueeze", {value}, {{"axes", std::vector<int64_t>{at}}}));
  Shape copies = shape;
  copies.insert(copies.begin() + at, times);
  GP_TRY(const auto repeated, context.emit("Expand", apart, {{"shape", std::move(copies)}}));
  shape[axis] = *joined;
  GP_TRY(const auto rows, context.emit("Reshape", repeated, {{"shape", std::move(shape)}}));
  return rows.front();
}

Status lower_tile(NodeContext& context) {
  GP_TRY(Shape repeats, context.dims(1, "repeats"));
  context.lowering().suspect_batch(context.node(), repeats);
  GP_TRY(ir::ValueId value, context.value(0));
  if (repeats.size() != context.rank(0))
    return context.problem(Code::kBadModel, text("has ", repeats.size(), " repeats for ", context.rank(0), " axes"),
                           "export the model again");
  std::vector<int64_t> numbers;
  for (const Dim dim : repeats) numbers.push_back(dim.is_fixed() ? dim.factor : 1);
  const bool by_batch = std::ranges::any_of(repeats, [](Dim dim) { return !dim.is_fixed(); });
  if (!by_batch) return context.emit_outputs("Tile", {value}, {{"repeats", std::move(numbers)}});
  if (std::ranges::any_of(numbers, [](int64_t times) { return times != 1; })) {
    GP_TRY(const auto tiled, context.emit("Tile", {value}, {{"repeats", std::move(numbers)}}));
    value = tiled.front();
  }
  for (size_t axis = 0; axis < repeats.size(); ++axis) {
    if (repeats[axis].is_fixed()) continue;
    GP_TRY(value, repeat_by_batch(context, value, axis, repeats[axis]));
  }
  context.bind(0, value);
  return Ok{};
}

/// Rows -before to size + after of one axis, wrapping around (circular padding): slices of the input, concatenated.
Result<ir::ValueId> wrap_axis(NodeContext& context, ir::ValueId input, int64_t axis, int64_t before, int64_t after) {
  constexpr int64_t kMaxRounds = 64;
  const Dim dim = context.lowering().graph().value(input).type.shape[static_cast<size_t>(axis)];
  if (!dim.is_fixed())
    return context.problem(Code::kMixesSamples, "adds rows to the batch axis", "check which axis is the batch");
  const int64_t size = dim.factor;
  const auto too_far = [size](int64_t rows) { return rows < -size || rows / kMaxRounds > size; };
  if (size < 1 || too_far(before) || too_far(after) || before + size + after < 1)
    return context.problem(Code::kBadModel, "its pads do not fit its input", "export the model again");
  std::vector<ir::ValueId> parts;
  for (int64_t at = -before; at < size + after;) {
    const int64_t start = ((at % size) + size) % size, count = std::min(size - start, size + after - at);
    at += count;
    if (count == size) {
      parts.push_back(input);
      continue;
    }
    GP_TRY(const ir::ValueId part, context.emit_slice(input, axis, start, start + count));
    parts.push_back(part);
  }
  if (parts.size() == 1) return parts[0];
  GP_TRY(const auto joined, context.emit("Concat", std::move(parts), {{"axis", axis}}));
  return joined[0];
}

/// Pad in mode wrap, one axis after the other: corners are wrapped twice.
Status wrap(NodeContext& context, const std::vector<int64_t>& pads) {
  GP_TRY(ir::ValueId value, context.value(0));
  const size_t rank = pads.size() / 2;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (pads[axis] == 0 && pads[axis + rank] == 0) continue;
    GP_TRY(value, wrap_axis(context, value, static_cast<int64_t>(axis), pads[axis], pads[axis + rank]));
  }
  context.bind(0, value);
  return Ok{};
}

Status lower_pad(NodeContext& context) {
  GP_TRY(const std::vector<int64_t> given, context.integers(1, "pads"));
  const size_t rank = context.rank(0);
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (context.has_input(3)) {
    GP_TRY(axes, context.integers(3, "axes"));
  }
  if (given.size() != 2 * axes.size())
    return context.problem(Code::kBadModel, "its pads do not fit its axes", "export the model again");
  std::vector<int64_t> pads(2 * rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    GP_TRY(const int64_t axis, context.axis(axes[i], rank));
    pads[static_cast<size_t>(axis)] = given[i];
    pads[static_cast<size_t>(axis) + rank] = given[axes.size() + i];
  }
  const std::string mode = context.string_attribute("mode", "constant");
  if (mode == "wrap") return wrap(context, pads);
  double fill = 0;
  if (context.has_input(2)) {
    GP_TRY(const std::vector<double> value, context.reals(2, "fill value"));
    if (!value.empty()) fill = value[0];
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Pad", {input}, {{"pads", std::move(pads)}, {"value", fill}, {"mode", mode}});
}

/// DepthToSpace (PixelShuffle) and SpaceToDepth: swap blocks of channels with blocks of pixels.
Status lower_blocks(NodeContext& context) {
  const bool to_space = context.node().op == "DepthToSpace";
  const int64_t block = context.int_attribute("blocksize", 0);
  const Shape from = context.type(0).shape;
  const bool planes = from.size() == 4 && from[1].is_fixed() && from[2].is_fixed() && from[3].is_fixed();
  if (!planes || block < 1 || block > (1 << 20))
    return context.problem(Code::kBadModel, "needs an input [N, C, H, W] and a block of at least 1", "export again");
  const int64_t c = from[1].factor, h = from[2].factor, w = from[3].factor;
  const bool fits = to_space ? c % (block * block) == 0 : h % block == 0 && w % block == 0;
  if (!fits) return context.problem(Code::kBadModel, "its blocks do not divide the input", "export the model again");
  const bool channels_last = context.string_attribute("mode", "DCR") == "DCR";
  const Dim n = from[0], b = Dim::fixed(block);
  const auto fixed = [](int64_t size) { return Dim::fixed(size); };
  Shape split, target;
  std::vector<int64_t> perm;
  if (to_space) {
    const Dim rest = fixed(c / (block * block));
    split = channels_last ? Shape{n, b, b, rest, fixed(h), fixed(w)} : Shape{n, rest, b, b, fixed(h), fixed(w)};
    perm = channels_last ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3};
    target = {n, rest, fixed(h * block), fixed(w * block)};
  } else {
    split = {n, fixed(c), fixed(h / block), b, fixed(w / block), b};
    perm = channels_last ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4};
    target = {n, fixed(c * block * block), fixed(h / block), fixed(w / block)};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(const std::vector<ir::ValueId> parts, context.emit("Reshape", {input}, {{"shape", std::move(split)}}));
  GP_TRY(std::vector<ir::ValueId> moved, context.emit("Transpose", {parts[0]}, {{"perm", std::move(perm)}}));
  return context.emit_outputs("Reshape", std::move(moved), {{"shape", std::move(target)}});
}

}  // namespace

Result<Shape> reshape_target(NodeContext& context) {
  GP_TRY(Shape target, context.dims(1, "target shape"));
  const Shape& from = context.type(0).shape;
  if (context.int_attribute("allowzero", 0) == 0)
    for (size_t i = 0; i < target.size(); ++i)
      if (target[i] == Dim::fixed(0)) {
        if (i >= from.size())
          return context.problem(Code::kBadModel, "copies a dimension that its input lacks", "export the model again");
        target[i] = from[i];
      }
  GP_TRY_VOID(rebind_target(context, target));
  context.lowering().suspect_batch(context.node(), target);
  const auto wildcards = std::count(target.begin(), target.end(), Dim::fixed(-1));
  const std::optional<Dim> total = ir::element_count(from);
  Shape rest = target;
  std::erase(rest, Dim::fixed(-1));
  const bool negative = std::any_of(rest.begin(), rest.end(), [](Dim dim) { return dim.factor < 0; });
  const std::optional<Dim> known = negative ? std::nullopt : ir::element_count(rest);
  if (wildcards > 1 || !total || !known)
    return context.problem(Code::kBadModel, "its target shape is no shape", "export the model again");
  if (wildcards == 1) {
    const std::optional<Dim> missing = quotient(*total, *known);
    if (!missing)
      return context.problem(Code::kUnresolvedShape, "its input does not divide into the target shape",
                             "export with a named batch axis");
    std::replace(target.begin(), target.end(), Dim::fixed(-1), *missing);
  } else if (*known != *total) {
    return context.problem(Code::kUnresolvedShape, "its target shape has another number of elements than its input",
                           "export with a named batch axis");
  }
  return target;
}

std::vector<HandlerEntry> shape_handlers() {
  return {{"Reshape", lower_reshape},     {"Flatten", lower_flatten}, {"Expand", lower_expand},
          {"Unsqueeze", lower_unsqueeze}, {"Squeeze", lower_squeeze}, {"Transpose", lower_transpose},
          {"Tile", lower_tile},           {"Pad", lower_pad},         {"DepthToSpace", lower_blocks},
          {"SpaceToDepth", lower_blocks}};
}

}  // namespace graphpipe::frontend
