// Operators that gather or scatter by index tensors: made of look-ups and scatters along an axis.

#include <algorithm>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Ints = std::vector<int64_t>;

/// Creates the int64 values for computing indices.
class Indices {
 public:
  explicit Indices(NodeContext& context) : context_(context) {}

  Result<ValueId> one(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
    return context_.emit_one(op, std::move(inputs), std::move(attributes));
  }
  Result<ValueId> number(int64_t value) { return context_.scalar(static_cast<double>(value), ir::DType::kInt64); }
  /// 0, 1, .. along one of `rank` axes.
  Result<ValueId> counted(int64_t size, size_t axis, size_t rank) {
    GP_TRY(const ValueId list, one("Iota", {}, {{"shape", Shape{Dim::fixed(size)}}, {"to", std::string("i64")}}));
    return along(list, axis, rank);
  }
  /// Reshapes a list into one axis of a tensor whose other axes have size 1.
  Result<ValueId> along(ValueId list, size_t axis, size_t rank) {
    Shape shape(rank, Dim::fixed(1));
    shape[axis] = context_.lowering().graph().value(list).type.shape[0];
    return one("Reshape", {list}, {{"shape", std::move(shape)}});
  }
  /// Input i, one number for each element of an axis of input 0, as int64.
  Result<ValueId> list_operand(size_t i, Dim size) {
    if (context_.rank(i) != 1 || context_.type(i).shape[0] != size)
      return context_.problem(Code::kBadModel, text("its input ", i, " needs one number for each sample"),
                              "export the model again");
    GP_TRY(const ValueId list, context_.value(i));
    if (context_.type(i).dtype == ir::DType::kInt64) return list;
    return one("Cast", {list}, {{"to", std::string("i64")}});
  }

 private:
  NodeContext& context_;
};

/// The first `length` steps of each sequence in reverse order: step t comes from length - 1 - t if t < length.
Status lower_reverse_sequence(NodeContext& context) {
  const int64_t batch = context.int_attribute("batch_axis", 1), time = context.int_attribute("time_axis", 0);
  const Shape shape = context.type(0).shape;
  if (shape.size() < 2 || batch + time != 1 || batch * time != 0)
    return context.problem(Code::kBadModel, "its batch and time axes are not the first two", "export the model again");
  const Dim steps = shape[static_cast<size_t>(time)];
  if (!steps.is_fixed())
    return context.problem(Code::kMixesSamples, "reverses the order of the samples",
                           "put the samples on its batch_axis");
  Indices indices(context);
  GP_TRY(const ValueId list, indices.list_operand(1, shape[static_cast<size_t>(batch)]));
  GP_TRY(const ValueId lengths, indices.along(list, static_cast<size_t>(batch), 2));
  GP_TRY(const ValueId step, indices.counted(steps.factor, static_cast<size_t>(time), 2));
  GP_TRY(const ValueId one, indices.number(1));
  GP_TRY(const ValueId last, indices.one("Sub", {lengths, one}));
  GP_TRY(const ValueId mirrored, indices.one("Sub", {last, step}));
  GP_TRY(const ValueId inside, indices.one("Less", {step, lengths}));
  GP_TRY(const ValueId source, indices.one("Where", {inside, mirrored, step}));
  Shape apart(shape.size(), Dim::fixed(1));
  std::copy(shape.begin(), shape.begin() + 2, apart.begin());
  GP_TRY(const ValueId turned, indices.one("Reshape", {source}, {{"shape", std::move(apart)}}));
  GP_TRY(const ValueId all, indices.one("Expand", {turned}, {{"shape", shape}}));
  GP_TRY(const ValueId input, context.value(0));
  return context.emit_outputs("GatherElements", {input, all}, {{"axis", time}});
}

/// A cache whose rows from each sample's index on are replaced, wrapping around if it is circular.
Status lower_tensor_scatter(NodeContext& context) {
  const std::string mode = context.string_attribute("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return context.problem(Code::kBadModel, "its mode is neither linear nor circular", "export the model again");
  const size_t rank = context.rank(0);
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", -2), rank));
  const Shape cache = context.type(0).shape, update = context.type(1).shape;
  const auto at = static_cast<size_t>(axis);
  const bool fits = axis > 0 && update.size() == rank && cache[at].is_fixed() && update[at].is_fixed() &&
                    update[at].factor <= cache[at].factor;
  if (!fits) return context.problem(Code::kBadModel, "its update does not fit its cache", "export the model again");
  Indices indices(context);
  GP_TRY(ValueId place, indices.counted(update[at].factor, at, rank));
  if (context.has_input(2)) {
    GP_TRY(const ValueId list, indices.list_operand(2, cache[0]));
    GP_TRY(const ValueId first, indices.along(list, 0, rank));
    GP_TRY(place, indices.one("Add", {place, first}));
  }
  if (mode == "circular") {
    GP_TRY(const ValueId size, indices.number(cache[at].factor));
    GP_TRY(place, indices.one("Mod", {place, size}));
  }
  GP_TRY(place, indices.one("Expand", {place}, {{"shape", update}}));
  GP_TRY(const ValueId old, context.value(0));
  GP_TRY(const ValueId rows, context.value(1));
  return context.emit_outputs("ScatterElements", {old, place, rows}, {{"axis", axis}});
}

/// The elements whose condition holds, if the file determines which they are.
Status lower_compress(NodeContext& context) {
  const Known* condition = context.known(1);
  const std::optional<size_t> count = condition == nullptr ? std::nullopt : known_count(condition->shape);
  if (!count)
    return context.problem(Code::kUnsupportedOp, "the size of its output depends on data",
                           "write x[mask] as torch.where or as a product with the mask, or make the mask a constant");
  std::vector<Number> places;
  for (size_t i = 0; i < *count; ++i)
    if (condition->element(i).factor() != 0) places.push_back(Number::of_whole(static_cast<int64_t>(i)));
  GP_TRY(ValueId value, context.value(0));
  int64_t axis = 0;
  const std::optional<Dim> elements = ir::element_count(context.type(0).shape);
  if (context.node().find("axis") != nullptr) {
    GP_TRY(axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
  } else {
    if (!elements)
      return context.problem(Code::kLimitExceeded, "flattens an input of 2^48 elements or more", "give it an axis");
    Indices indices(context);
    GP_TRY(value, indices.one("Reshape", {value}, {{"shape", Shape{*elements}}}));
  }
  const Dim size = context.lowering().graph().value(value).type.shape[static_cast<size_t>(axis)];
  if (!size.is_fixed())
    return context.problem(Code::kMixesSamples, "picks samples of the batch by constant numbers", "take another axis");
  if (static_cast<int64_t>(*count) > size.factor)
    return context.problem(Code::kBadModel, "its condition is longer than its input", "export the model again");
  Binding list;
  list.known = Known::list(std::move(places));
  list.type = {ir::DType::kInt64, list.known->shape};
  list.name = text(node_label(context.node()).raw(), ".places");
  GP_TRY(const ValueId rows, context.lowering().value_of(list, context.node()));
  return context.emit_outputs("Gather", {value, rows}, {{"axis", axis}});
}

Status lower_bit_cast(NodeContext& context) {
  const int type = static_cast<int>(context.int_attribute("to", 0));
  const std::optional<ir::DType> to = dtype_of_onnx(type);
  if (!to)
    return context.problem(Code::kUnsupportedType, text("reads bits as ", onnx_type_name(type)),
                           "use a type of numbers");
  GP_TRY(const ValueId input, context.value(0));
  return context.emit_outputs("BitCast", {input}, {{"to", std::string(ir::dtype_name(*to))}});
}

}  // namespace

std::vector<HandlerEntry> place_handlers() {
  return {{"ReverseSequence", lower_reverse_sequence},
          {"TensorScatter", lower_tensor_scatter},
          {"Compress", lower_compress},
          {"BitCast", lower_bit_cast}};
}

}  // namespace graphpipe::frontend
