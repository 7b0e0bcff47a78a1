// MaxUnpool: puts every maximum back at its index, zeros elsewhere. Indices count through the whole tensor, so the
// index within a sample is the remainder of a division by the sample's number of elements.

#include "frontend/node_context.h"
#include "ops/infer_helpers.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Ints = std::vector<int64_t>;

/// The shape of the pool's input, [N, C, ..].
Result<Shape> unpooled_shape(NodeContext& context) {
  const Shape x = context.type(0).shape;
  const Ints kernel = context.ints_attribute("kernel_shape");
  const size_t axes = kernel.size();
  const Ints strides = context.ints_attribute("strides", Ints(axes, 1)),
             pads = context.ints_attribute("pads", Ints(2 * axes, 0));
  bool fits = axes > 0 && x.size() == axes + 2 && strides.size() == axes && pads.size() == 2 * axes &&
              context.type(1).shape == x && x[1].is_fixed();
  Shape shape = x;
  for (size_t i = 0; fits && i < axes; ++i) {
    int64_t size = 0;
    fits = x[i + 2].is_fixed() && !__builtin_mul_overflow(x[i + 2].factor - 1, strides[i], &size) &&
           !__builtin_add_overflow(size, kernel[i], &size) && !__builtin_sub_overflow(size, pads[i], &size) &&
           !__builtin_sub_overflow(size, pads[i + axes], &size) && size > 0;
    shape[i + 2] = Dim::fixed(size);
  }
  if (fits && ir::element_count(shape)) return shape;
  return context.problem(Code::kBadModel, "its windows, places and input do not fit each other",
                         "export the model again");
}

/// `output_shape` appends zeros.
Status bind_padded(NodeContext& context, ValueId value, const Shape& shape) {
  if (!context.has_input(2)) {
    context.bind(0, value);
    return Ok{};
  }
  GP_TRY(const Shape wanted, context.dims(2, "output shape"));
  Ints pads(2 * shape.size(), 0);
  bool fits = wanted.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits =
        wanted[i] == shape[i] || (wanted[i].is_fixed() && shape[i].is_fixed() && wanted[i].factor >= shape[i].factor);
    pads[shape.size() + i] = wanted[i].factor - shape[i].factor;
  }
  if (!fits)
    return context.problem(Code::kBadModel, "its output_shape is smaller than what its windows cover",
                           "export the model again");
  return context.emit_outputs("Pad", {value}, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
}

/// The indices within a sample of `elements` elements. Those of a MaxPool are a sum whose last operand is the sample's
/// offset.
Result<ValueId> places_in_sample(NodeContext& context, int64_t elements) {
  GP_TRY(const ValueId places, context.value(1));
  const ir::Graph& graph = context.lowering().graph();
  const auto producer = [&graph](ValueId value, std::string_view op) -> const ir::Node* {
    const ir::NodeId id = graph.value(value).producer;
    return id.valid() && graph.node(id).op == op ? &graph.node(id) : nullptr;
  };
  const ir::Node* sum = producer(places, "Add");
  const ir::Node* column = sum == nullptr ? nullptr : producer(sum->inputs[1], "Reshape");
  const ir::Node* count = column == nullptr ? nullptr : producer(column->inputs[0], "Iota");
  if (count != nullptr && graph.value(count->outputs[0]).type.shape[0] == context.type(1).shape[0] &&
      graph.value(column->outputs[0]).type.shape.size() == context.rank(1) &&
      count->attributes.get_double("start", 0) == 0 &&
      count->attributes.get_double("delta", 1) == static_cast<double>(elements))
    return sum->inputs[0];
  GP_TRY(const ValueId all, context.scalar(static_cast<double>(elements), ir::DType::kInt64));
  return context.emit_one("Mod", {places, all});
}

Status lower_max_unpool(NodeContext& context) {
  GP_TRY(const Shape shape, unpooled_shape(context));
  const Shape x = context.type(0).shape;
  const Shape flat = {x[0], ops::product_of(shape, 1, shape.size())}, flat_x = {x[0], ops::product_of(x, 1, x.size())};
  GP_TRY(ValueId values, context.value(0));
  GP_TRY(ValueId places, places_in_sample(context, flat[1].factor));
  GP_TRY(places, context.emit_one("Reshape", {places}, {{"shape", flat_x}}));
  GP_TRY(values, context.emit_one("Reshape", {values}, {{"shape", flat_x}}));
  GP_TRY(const ValueId zeros, context.filled(0, {context.type(0).dtype, flat}));
  GP_TRY(ValueId result, context.emit_one("ScatterElements", {zeros, places, values}, {{"axis", int64_t{1}}}));
  GP_TRY(result, context.emit_one("Reshape", {result}, {{"shape", shape}}));
  return bind_padded(context, result, shape);
}

}  // namespace

std::vector<HandlerEntry> unpool_handlers() { return {{"MaxUnpool", lower_max_unpool}}; }

}  // namespace graphpipe::frontend
