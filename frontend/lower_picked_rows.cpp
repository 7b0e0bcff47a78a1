// Rows of what a mask picks: their shapes, reductions over the places, products with weights.

#include <algorithm>
#include <numeric>

#include "frontend/exported_call.h"
#include "frontend/lower_selection.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// Input 0, which most operators transform or combine.
struct Rows {
  Selected selected;
  Selection selection;
  /// In the file, and with the axes of the box.
  Shape shape, places;
  ValueId value;
  /// Where the box begins in `places`.
  size_t first() const { return selected.axis - selected.outer; }
  /// Number of axes after the places.
  size_t behind() const { return shape.size() - selected.axis - 1; }
};

Result<Rows> rows_input(NodeContext& context) {
  const Selected* selected = rows_of(context, 0);
  if (selected == nullptr) return refuse_selection(context, "takes what a mask picks in a form that is not supported");
  const Binding& binding = context.input(0);
  if (selected->inner > 0) return refuse_selection(context, "reads what a mask picks, joined with another axis");
  return Rows{*selected, context.lowering().selections()[selected->selection], binding.type.shape,
              context.lowering().graph().value(binding.value).type.shape, binding.value};
}

// --- Shapes ---

/// Reshapes the rows, in the same order: one of the new axes still counts places.
Status reshape_rows(NodeContext& context, const Shape& target) {
  GP_TRY(const Rows rows, rows_input(context));
  const auto at = std::ranges::find_if(target, [](Dim dim) { return counts_places(dim); });
  const auto refusal = refuse_selection(context, "joins or splits the places that a mask picks");
  if (at == target.end()) return refusal;
  const Shape& box = rows.selection.box;
  const auto axis = static_cast<size_t>(at - target.begin());
  const Dim all = picked_places(rows.selected.selection, box);
  const std::optional<Dim> before = ir::element_count(Shape(target.begin(), at));
  const std::optional<Dim> had = ir::element_count(
      Shape(rows.shape.begin(), rows.shape.begin() + static_cast<std::ptrdiff_t>(rows.selected.axis)));
  Selected selected = rows.selected;
  selected.axis = axis;
  const std::optional<Dim> behind = ir::element_count(Shape(rows.shape.begin() + 1, rows.shape.end()));
  if (target.size() == 1 && rows.selected.axis == 0 && rows.shape.size() > 1 && behind && rows.selected.inner == 0) {
    selected.inner = rows.shape.size() - 1;  // [places, n] -> [places * n]
    return bind_selected(context, 0, {context.type(0).dtype, target}, rows.value, std::move(selected));
  }
  if (rows.selected.inner > 0) return refusal;
  if (*at == rows.shape[rows.selected.axis] && before == had) {
    if (rows.selected.outer > axis) return refusal;
  } else if (*at == Dim{1, all.power - 1} && rows.selected.outer == 0 && rows.selected.axis == 0 && axis == 1 &&
             target[0] == Dim::batch() && box[0] == Dim::batch()) {
    selected.outer = 1;  // [places, ...] -> [B, places of a sample, ...]
  } else {
    return refusal;
  }
  Shape places(target.begin(), at);
  places.insert(places.end(), box.begin() + static_cast<std::ptrdiff_t>(selected.outer), box.end());
  places.insert(places.end(), at + 1, target.end());
  ValueId value = rows.value;
  if (places != rows.places) {
    GP_TRY(const auto made, context.emit("Reshape", {value}, {{"shape", std::move(places)}}));
    value = made[0];
  }
  return bind_selected(context, 0, {context.type(0).dtype, target}, value, std::move(selected));
}

Status lower_rows_squeeze(NodeContext& context) {
  Shape shape = context.type(0).shape;
  std::vector<int64_t> axes;
  if (context.has_input(1)) {
    GP_TRY(const std::vector<int64_t> given, context.integers(1, "axes"));
    GP_TRY(axes, context.axes(given, shape.size()));
  } else {
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == Dim::fixed(1)) axes.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = axes.size(); i-- > 0;) shape.erase(shape.begin() + axes[i]);
  return reshape_rows(context, shape);
}

Status lower_rows_unsqueeze(NodeContext& context) {
  GP_TRY(const std::vector<int64_t> given, context.integers(1, "axes"));
  Shape shape = context.type(0).shape;
  GP_TRY(const std::vector<int64_t> axes, context.axes(given, shape.size() + given.size()));
  for (const int64_t axis : axes) shape.insert(shape.begin() + axis, Dim::fixed(1));
  return reshape_rows(context, shape);
}

Status lower_rows_reshape(NodeContext& context) {
  GP_TRY(const Shape target, reshape_target(context));
  return reshape_rows(context, target);
}

Status lower_rows_transpose(NodeContext& context) {
  GP_TRY(const Rows rows, rows_input(context));
  GP_TRY(const std::vector<int64_t> perm, context.permutation(rows.shape.size()));
  if (rows.selected.outer > 0) return refuse_selection(context, "moves the places of each sample to another axis");
  const auto axis = static_cast<int64_t>(rows.selected.axis),
             more = static_cast<int64_t>(rows.selection.box.size()) - 1;
  std::vector<int64_t> order;
  Shape shape;
  Selected selected = rows.selected;
  for (const int64_t from : perm) {
    if (from == axis) selected.axis = shape.size();
    shape.push_back(rows.shape[static_cast<size_t>(from)]);
    for (int64_t i = 0; i <= (from == axis ? more : 0); ++i) order.push_back((from > axis ? from + more : from) + i);
  }
  ValueId value = rows.value;
  if (!std::ranges::is_sorted(order)) {
    GP_TRY(const auto made, context.emit("Transpose", {value}, {{"perm", std::move(order)}}));
    value = made[0];
  }
  return bind_selected(context, 0, {context.type(0).dtype, std::move(shape)}, value, std::move(selected));
}

Status lower_rows_expand(NodeContext& context) {
  GP_TRY(const Rows rows, rows_input(context));
  GP_TRY(const Shape target, context.dims(1, "target shape"));
  const std::optional<Shape> shape = broadcast(rows.shape, target);
  if (!shape || shape->size() != rows.shape.size())
    return refuse_selection(context, "repeats what a mask picks in a form that is not supported");
  if (*shape == rows.shape) {
    context.bind_alias();
    return Ok{};
  }
  Shape places = rows.places;
  for (size_t i = 0; i < shape->size(); ++i) {
    if (i < rows.first()) places[i] = (*shape)[i];
    if (i > rows.selected.axis) places[places.size() - (shape->size() - i)] = (*shape)[i];
  }
  GP_TRY(const auto made, context.emit("Expand", {rows.value}, {{"shape", std::move(places)}}));
  return bind_selected(context, 0, {context.type(0).dtype, *shape}, made[0], rows.selected);
}

// --- Reductions ---

/// The number of elements behind each result of a mean over the places, [outer axes of the box..., 1, ...].
Result<ValueId> count_of(NodeContext& context, const Rows& rows, Dim others, const Shape& like, ir::DType dtype) {
  const Selection& selection = rows.selection;
  std::vector<int64_t> axes(selection.box.size() - rows.selected.outer);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(rows.selected.outer));
  GP_TRY(const auto numbers, context.emit("Cast", {selection.mask}, {{"to", std::string(ir::dtype_name(dtype))}}));
  GP_TRY(const auto sum, context.emit("ReduceSum", {numbers[0]}, {{"axes", axes}, {"keepdims", int64_t{0}}}));
  GP_TRY(const ValueId factor, context.scalar(static_cast<double>(others.factor), dtype));
  GP_TRY(const auto product, context.emit("Mul", {sum[0], factor}, {}));
  if (rows.selected.outer == 0) return product[0];
  Shape shape(like.size(), Dim::fixed(1));
  for (size_t i = 0; i < rows.selected.outer; ++i) shape[rows.first() + i] = selection.box[i];
  GP_TRY(const auto shaped, context.emit("Reshape", {product[0]}, {{"shape", std::move(shape)}}));
  return shaped[0];
}

struct ReducedAxes {
  /// Reduced axes of the value with the box.
  std::vector<int64_t> axes;
  /// The result with all axes kept.
  Shape kept;
  /// The product of the reduced sizes except that of the places.
  Dim others = Dim::fixed(1);
};

Result<ReducedAxes> reduced_axes(NodeContext& context, const Rows& rows, const std::vector<int64_t>& axes) {
  const size_t more = rows.places.size() - rows.shape.size();
  ReducedAxes result{.kept = rows.shape};
  Shape others;
  for (const int64_t axis : axes) {
    const auto at = static_cast<size_t>(axis);
    result.kept[at] = Dim::fixed(1);
    if (at != rows.selected.axis) others.push_back(rows.shape[at]);
    for (size_t i = 0; i <= (at == rows.selected.axis ? more : 0); ++i)
      result.axes.push_back(static_cast<int64_t>((at > rows.selected.axis ? at + more : at) + i));
  }
  const std::optional<Dim> count = ir::element_count(others);
  if (!count || !count->is_fixed())
    return refuse_selection(context, "reduces the batch together with what a mask picks");
  result.others = *count;
  return result;
}

/// The axes that the node reduces; none where it reduces nothing.
Result<std::vector<int64_t>> axes_of_reduce(NodeContext& context, size_t rank) {
  std::vector<int64_t> given = context.ints_attribute("axes");
  if (context.has_input(1)) {
    GP_TRY(given, context.integers(1, "axes"));
  }
  GP_TRY(std::vector<int64_t> axes, context.axes(given, rank));
  if (!axes.empty() || context.int_attribute("noop_with_empty_axes", 0) != 0) return axes;
  axes.resize(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Status lower_rows_reduce(NodeContext& context) {
  GP_TRY(const Rows rows, rows_input(context));
  const std::string& op = context.node().op;
  GP_TRY(const std::vector<int64_t> axes, axes_of_reduce(context, rows.shape.size()));
  if (axes.empty()) {
    context.bind_alias();
    return Ok{};
  }
  const bool keeps = context.int_attribute("keepdims", 1) != 0;
  const bool joins = std::ranges::find(axes, static_cast<int64_t>(rows.selected.axis)) != axes.end();
  const ir::DType dtype = context.type(0).dtype;
  const bool extreme = op == "ReduceMax" || op == "ReduceMin";
  if (joins && ((op != "ReduceSum" && op != "ReduceMean" && !extreme) || !ir::is_floating(dtype)))
    return refuse_selection(context, "reduces what a mask picks, and is no sum, mean or extreme of floats");
  GP_TRY(ReducedAxes reduced, reduced_axes(context, rows, axes));
  ValueId value = rows.value;
  if (joins) {
    const double neutral = op == "ReduceMax" ? -kInfinity : op == "ReduceMin" ? kInfinity : 0;
    GP_TRY(value, keep_picked(context, rows.selection, value, rows.behind(), neutral));
  }
  const std::string_view reduce = joins && !extreme ? "ReduceSum" : std::string_view(op);
  GP_TRY(const auto made,
         context.emit(reduce, {value}, {{"axes", reduced.axes}, {"keepdims", int64_t{joins || keeps}}}));
  value = made[0];
  Shape shape = reduced.kept;
  if (!keeps) {
    for (size_t i = axes.size(); i-- > 0;) shape.erase(shape.begin() + axes[i]);
  }
  if (!joins) {
    Selected selected = rows.selected;
    if (!keeps)
      selected.axis -= static_cast<size_t>(
          std::ranges::count_if(axes, [&](int64_t axis) { return static_cast<size_t>(axis) < rows.selected.axis; }));
    return bind_selected(context, 0, {dtype, std::move(shape)}, value, std::move(selected));
  }
  GP_TRY(const auto kept, context.emit("Reshape", {value}, {{"shape", reduced.kept}}));
  value = kept[0];
  if (op == "ReduceMean") {
    GP_TRY(const ValueId count, count_of(context, rows, reduced.others, reduced.kept, dtype));
    GP_TRY(const auto mean, context.emit("Div", {value, count}, {}));
    value = mean[0];
  }
  return context.emit_outputs("Reshape", {value}, {{"shape", std::move(shape)}});
}

// --- The first or last place of each sample ---

/// x[:, 0] and x[:, -1] of rows [B, places of a sample, ...].
Status lower_rows_pick(NodeContext& context, const Rows& rows) {
  const Known* index = context.known(1);
  const bool one = index != nullptr && index->shape.empty() && index->elements[0].is_fixed() &&
                   (index->elements[0].whole == 0 || index->elements[0].whole == -1);
  const bool fits =
      one && rows.selected.outer + 1 == rows.selection.box.size() && rows.selected.axis == rows.selected.outer;
  if (!fits)
    return refuse_selection(context,
                            "takes one of the places that a mask picks, and not the first or last of each sample");
  const bool last = index->elements[0].whole == -1;
  const auto axis = static_cast<int64_t>(rows.selected.outer);
  const Dim size = rows.selection.box.back();
  if (!size.is_fixed()) return refuse_selection(context, "takes a place of the batch");
  GP_TRY(const auto numbers,
         context.emit("Iota", {}, {{"shape", Shape{size}}, {"to", std::string(ir::dtype_name(ir::DType::kInt64))}}));
  GP_TRY(const ValueId none, context.scalar(last ? -1 : static_cast<double>(size.factor), ir::DType::kInt64));
  GP_TRY(const auto picked, context.emit("Where", {rows.selection.mask, numbers[0], none}, {}));
  GP_TRY(const auto at, context.emit(last ? "ReduceMax" : "ReduceMin", {picked[0]},
                                     {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}}));
  GP_TRY(const auto is_it, context.emit("Equal", {numbers[0], at[0]}, {}));
  GP_TRY(const ValueId kept, keep_picked(context, {is_it[0], rows.selection.box, {}}, rows.value, rows.behind(), 0));
  return context.emit_outputs("ReduceSum", {kept}, {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{0}}});
}

/// A fresh name for a value.
std::string name_of(NodeContext& context, std::string_view what, ValueId value) {
  std::string name = context.lowering().unused_name(text(context.node().outputs[0], " ", what));
  context.lowering().bind_value(name, value);
  return name;
}

/// A loss of picked rows [places, classes] and their labels: one over all places, with the labels of the others
/// ignored.
Status lower_rows_loss(NodeContext& context) {
  GP_TRY(const Rows rows, rows_input(context));
  const Selected* labels = rows_of(context, 1);
  const std::optional<Dim> count = ir::element_count(rows.selection.box);
  const bool fits = labels != nullptr && labels->selection == rows.selected.selection && rows.shape.size() == 2 &&
                    context.rank(1) == 1 && rows.selected.axis == 0 && rows.selected.outer == 0 && count &&
                    context.string_attribute("reduction", "mean") != "none";
  if (!fits) return refuse_selection(context, "is a loss of what a mask picks in a form that is not supported");
  OnnxNode node = context.node();
  if (node.find("ignore_index") == nullptr) {
    Attribute ignored;
    ignored.name = "ignore_index";
    ignored.kind = Attribute::Kind::kInt;
    ignored.i = -100;
    node.attributes.push_back(std::move(ignored));
  }
  const auto ignored = static_cast<double>(node.find("ignore_index")->i);
  GP_TRY(const ValueId marked, keep_picked(context, rows.selection, context.input(1).value, 0, ignored));
  GP_TRY(const auto label, context.emit("Reshape", {marked}, {{"shape", Shape{*count}}}));
  GP_TRY(const auto scores, context.emit("Reshape", {rows.value}, {{"shape", Shape{*count, rows.shape[1]}}}));
  node.inputs[0] = name_of(context, "scores at all places", scores[0]);
  node.inputs[1] = name_of(context, "labels at all places", label[0]);
  NodeContext inner(context.lowering(), node);
  const Handler handler = find_handler(node.op);
  return (handler != nullptr ? handler : lower_plain)(inner);
}

/// Gemm only accepts matrices: its product, with the places as further axes.
Status lower_rows_gemm(NodeContext& context) {
  const bool fits = rows_of(context, 0) != nullptr && rows_of(context, 1) == nullptr &&
                    context.int_attribute("transA", 0) == 0 && context.float_attribute("alpha", 1) == 1 &&
                    context.float_attribute("beta", 1) == 1 && context.rank(0) == 2 && context.rank(1) == 2 &&
                    rows_of(context, 0)->axis == 0;
  if (!fits) return refuse_selection(context, "multiplies what a mask picks in a form that is not supported");
  GP_TRY(const Rows rows, rows_input(context));
  GP_TRY(ValueId weight, context.value(1));
  if (context.int_attribute("transB", 0) != 0) {
    GP_TRY(const auto turned, context.emit("Transpose", {weight}, {{"perm", std::vector<int64_t>{1, 0}}}));
    weight = turned[0];
  }
  GP_TRY(auto made, context.emit("MatMul", {rows.value, weight}, {}));
  if (context.has_input(2)) {
    const bool of_features = rows_of(context, 2) == nullptr && context.rank(2) <= 1;
    if (!of_features) return refuse_selection(context, "adds to what a mask picks in a form that is not supported");
    GP_TRY(const ValueId bias, context.value(2));
    GP_TRY(made, context.emit("Add", {made[0], bias}, {}));
  }
  const Dim features = context.lowering().graph().value(made[0]).type.shape.back();
  return bind_selected(context, 0, {context.type(0).dtype, {rows.shape[0], features}}, made[0], rows.selected);
}

Status lower_rows_slice(NodeContext& context) {
  GP_TRY(const Rows rows, rows_input(context));
  const Known *starts = context.known(1), *ends = context.known(2), *axes = context.known(3), *steps = context.known(4);
  const auto refusal = refuse_selection(context, "takes some of the places that a mask picks");
  if (starts == nullptr || ends == nullptr || (context.has_input(4) && steps == nullptr) || axes == nullptr ||
      starts->elements.size() != axes->elements.size() || ends->elements.size() != axes->elements.size())
    return refusal;
  // All of the places, and a slice of the other axes, which are counted from the end.
  OnnxNode node = context.node();
  Known counted = *axes;
  for (size_t i = 0; i < axes->elements.size(); ++i) {
    GP_TRY(const int64_t axis, context.axis(axes->element(i).whole, rows.shape.size()));
    if (static_cast<size_t>(axis) <= rows.selected.axis) {
      const bool open = ends->element(i).is_fixed() && ends->element(i).whole >= INT32_MAX;
      const Number size = Number::of_dim(rows.shape[static_cast<size_t>(axis)]);
      if (axes->elements.size() != 1 || starts->element(i) != Number::of_whole(0) ||
          (!open && ends->element(i) != size))
        return refusal;
      context.bind_alias();
      return Ok{};
    }
    counted.elements[counted.uniform ? 0 : i] = Number::of_whole(axis - static_cast<int64_t>(rows.shape.size()));
  }
  Binding binding;
  binding.type = {counted.dtype, counted.shape};
  binding.known = std::move(counted);
  const std::string name = context.lowering().unused_name(text(node.outputs[0], " axes from the end"));
  context.lowering().bind(name, std::move(binding));
  node.inputs[3] = name;
  NodeContext renamed(context.lowering(), node);
  return run_at_all_places(renamed);
}

}  // namespace

Status lower_picked_rows(NodeContext& context) {
  const std::string& op = context.node().op;
  if (op == "Identity" && !is_detached(context.node())) {
    context.bind_alias();
    return Ok{};
  }
  if (op == "Reshape") return lower_rows_reshape(context);
  if (op == "Squeeze") return lower_rows_squeeze(context);
  if (op == "Unsqueeze") return lower_rows_unsqueeze(context);
  if (op == "Transpose") return lower_rows_transpose(context);
  if (op == "Expand") return lower_rows_expand(context);
  if (op == "Slice") return lower_rows_slice(context);
  if (op == "Gemm") return lower_rows_gemm(context);
  if (op == "SoftmaxCrossEntropyLoss" || op == "NegativeLogLikelihoodLoss") return lower_rows_loss(context);
  if (op.starts_with("Reduce")) return lower_rows_reduce(context);
  if (op == "Gather" && rows_of(context, 0) != nullptr) {
    GP_TRY(const Rows rows, rows_input(context));
    GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), rows.shape.size()));
    if (static_cast<size_t>(axis) == rows.selected.axis) return lower_rows_pick(context, rows);
  }
  return run_at_all_places(context);
}

}  // namespace graphpipe::frontend
