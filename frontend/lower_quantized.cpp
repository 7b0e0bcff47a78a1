// Quantised operators, forward only: their integers are exact in floats, so products are computed in floating point.
//
// A float32 represents exactly what QuantizeLinear rounds to and what DequantizeLinear multiplies. Sums of up to 2^37
// products of two bytes are exact in float64, and wrap around when converted to int32, as ONNX's integer products do.

#include <algorithm>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::DType;
using ir::ValueId;

struct IntegerRange {
  double lowest, highest;
};

/// Nothing for types that are not quantised integers.
std::optional<IntegerRange> range_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return IntegerRange{0, 255};
    case DType::kInt8:
      return IntegerRange{-128, 127};
    case DType::kUInt16:
      return IntegerRange{0, 65535};
    case DType::kInt16:
      return IntegerRange{-32768, 32767};
    case DType::kUInt4:
      return IntegerRange{0, 15};
    case DType::kInt4:
      return IntegerRange{-8, 7};
    case DType::kUInt2:
      return IntegerRange{0, 3};
    case DType::kInt2:
      return IntegerRange{-2, 1};
    default:
      return std::nullopt;
  }
}

/// Emits the nodes of one quantised operator.
class Quantized {
 public:
  explicit Quantized(NodeContext& context) : context_(context) {}

  Result<ValueId> one(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
    return context_.emit_one(op, std::move(inputs), std::move(attributes));
  }
  const ir::TensorType& type(ValueId value) { return context_.lowering().graph().value(value).type; }
  Result<ValueId> cast(ValueId value, DType to, ir::Attributes attributes = {}) {
    if (type(value).dtype == to) return value;
    attributes.set("to", std::string(ir::dtype_name(to)));
    return one("Cast", {value}, std::move(attributes));
  }
  Result<ValueId> input(size_t i, DType to) {
    GP_TRY(const ValueId value, context_.value(i));
    return cast(value, to);
  }
  /// A scale or zero point broadcast to a tensor of this shape: per tensor, per index of the axis, or per block.
  Result<ValueId> spread(ValueId value, const ir::Shape& shape, int64_t axis, int64_t block);
  /// A per-row scale or zero point (rank 1), shaped for the left operand of a matrix product.
  Result<ValueId> of_rows(ValueId value);
  /// round(x / scale) + zero point, as the integer type.
  Result<ValueId> quantize(ValueId x, ValueId scale, std::optional<ValueId> zero_point, DType to);
  /// (x - zero point) in `wide`, where the zero point is input i or absent.
  Result<ValueId> centred(ValueId x, size_t i, DType wide, bool rows);

 private:
  Result<ValueId> blocks(ValueId value, const ir::Shape& shape, size_t axis, int64_t block);

  NodeContext& context_;
};

Result<ValueId> Quantized::blocks(ValueId value, const ir::Shape& shape, size_t axis, int64_t block) {
  ir::Shape each = type(value).shape;
  const auto blocks_in = [&](ir::Dim dim) { return (dim.factor + block - 1) / block; };
  if (each.size() != shape.size() || !shape[axis].is_fixed() || each[axis].factor != blocks_in(shape[axis]))
    return context_.problem(Code::kBadModel, text("its scale does not divide axis ", axis, " into blocks of ", block),
                            "export the model again");
  ir::Shape joined = each, repeated = each;
  joined[axis] = ir::Dim::fixed(each[axis].factor * block);
  const auto next = static_cast<int64_t>(axis) + 1;
  repeated.insert(repeated.begin() + next, ir::Dim::fixed(block));
  GP_TRY(value, one("Unsqueeze", {value}, {{"axes", std::vector<int64_t>{next}}}));
  GP_TRY(value, one("Expand", {value}, {{"shape", repeated}}));
  GP_TRY(value, one("Reshape", {value}, {{"shape", joined}}));
  if (joined[axis] == shape[axis]) return value;
  return one("Slice", {value},
             {{"starts", std::vector<int64_t>{0}},
              {"ends", std::vector<int64_t>{shape[axis].factor}},
              {"axes", std::vector<int64_t>{static_cast<int64_t>(axis)}},
              {"steps", std::vector<int64_t>{1}}});
}

Result<ValueId> Quantized::spread(ValueId value, const ir::Shape& shape, int64_t axis, int64_t block) {
  const size_t rank = type(value).shape.size();
  const bool single = rank == 0 || (rank == 1 && type(value).shape[0] == ir::Dim::fixed(1));
  if (single)
    return rank == 0 || !shape.empty() ? Result<ValueId>(value) : one("Reshape", {value}, {{"shape", ir::Shape{}}});
  GP_TRY(const int64_t at, context_.axis(axis, shape.size()));
  if (block > 0) {
    const ir::Dim size = shape[static_cast<size_t>(at)];
    return blocks(value, shape, static_cast<size_t>(at),
                  size.is_fixed() ? std::max<int64_t>(1, std::min(block, size.factor)) : block);
  }
  ir::Shape target(shape.size(), ir::Dim::fixed(1));
  if (rank != 1 || type(value).shape[0] != shape[static_cast<size_t>(at)])
    return context_.problem(Code::kBadModel, text("its scale or zero point is not one for each index of axis ", at),
                            "export the model again");
  target[static_cast<size_t>(at)] = type(value).shape[0];
  return one("Reshape", {value}, {{"shape", target}});
}

Result<ValueId> Quantized::of_rows(ValueId value) {
  const ir::Shape& shape = type(value).shape;
  if (shape.size() != 1 || shape[0] == ir::Dim::fixed(1)) return value;
  return one("Reshape", {value}, {{"shape", ir::Shape{shape[0], ir::Dim::fixed(1)}}});
}

/// Reported once per model, which may have hundreds.
void note_rounding(NodeContext& context) {
  const std::string message =
      "rounds to what its type holds, and no gradient passes through that: in a training, "
      "parameters that the loss reaches only through it stay as they are";
  for (const Diagnostic& said : context.lowering().notes())
    if (said.message.ends_with(message)) return;
  context.note(Severity::kNote, Code::kUntrainable, message,
               "train the model before it is quantised, or run this one with --policy inference");
}

Result<ValueId> Quantized::quantize(ValueId x, ValueId scale, std::optional<ValueId> zero_point, DType to) {
  note_rounding(context_);
  GP_TRY(ValueId value, one("Div", {x, scale}));
  const std::optional<IntegerRange> range = range_of(to);
  if (!range) {
    if (!wire::is_stored_only(to))
      return context_.problem(Code::kUnsupportedType, text("quantises to ", ir::dtype_name(to)),
                              "quantise to integers of at most 16 bits or to small floats");
    if (zero_point) {
      GP_TRY(value, cast(value, DType::kFloat32));
      GP_TRY(value, one("Add", {value, *zero_point}));
    }
    return cast(value, to, {{"saturate", context_.int_attribute("saturate", 1)}});
  }
  GP_TRY(value, one("Round", {value}));
  GP_TRY(value, cast(value, DType::kFloat32));
  if (zero_point) {
    GP_TRY(const ValueId offset, cast(*zero_point, DType::kFloat32));
    GP_TRY(value, one("Add", {value, offset}));
  }
  GP_TRY(value, one("Clip", {value}, {{"min", range->lowest}, {"max", range->highest}}));
  return cast(value, to);
}

Result<ValueId> Quantized::centred(ValueId x, size_t i, DType wide, bool rows) {
  GP_TRY(ValueId value, cast(x, wide));
  if (!context_.has_input(i)) return value;
  GP_TRY(ValueId zero_point, input(i, wide));
  if (rows) {
    GP_TRY(zero_point, of_rows(zero_point));
  }
  return one("Sub", {value, zero_point});
}

/// Scales belong to the quantisation, which was computed for fixed weights: they are not trained.
void hold_scales(NodeContext& context, std::initializer_list<size_t> inputs) {
  for (const size_t i : inputs)
    if (context.has_input(i)) context.input(i).origin = ParamOrigin::kFolded;
}

/// The element type that an attribute names; none if it is omitted.
Result<std::optional<DType>> type_attribute(NodeContext& context, std::string_view name) {
  const int64_t number = context.int_attribute(name, 0);
  if (number == 0) return std::optional<DType>();
  const std::optional<DType> type =
      number > 0 && number < 1000 ? dtype_of_onnx(static_cast<int>(number)) : std::optional<DType>();
  if (!type)
    return context.problem(Code::kUnsupportedType, text("its ", name, " is type ", number, " of ONNX"),
                           "name a number type");
  return type;
}

/// The same, for a floating type.
Result<std::optional<DType>> floating_attribute(NodeContext& context, std::string_view name) {
  GP_TRY(const std::optional<DType> type, type_attribute(context, name));
  if (type && !ir::is_floating(*type))
    return context.problem(Code::kBadModel, text("its ", name, " is ", ir::dtype_name(*type)), "name a floating type");
  return type;
}

Result<int64_t> block_attribute(NodeContext& context) {
  const int64_t block = context.int_attribute("block_size", 0);
  if (block < 0) return context.problem(Code::kBadModel, text("its block_size is ", block), "export the model again");
  return block;
}

Status lower_quantize(NodeContext& context) {
  Quantized make(context);
  hold_scales(context, {1});
  GP_TRY(ValueId x, context.value(0));
  GP_TRY(ValueId scale, context.value(1));
  const ir::Shape shape = context.type(0).shape;
  const int64_t axis = context.int_attribute("axis", 1);
  GP_TRY(const int64_t block, block_attribute(context));
  GP_TRY(const std::optional<DType> asked_type, type_attribute(context, "output_dtype"));
  DType to = asked_type.value_or(DType::kUInt8);
  if (context.has_input(2)) {
    to = context.type(2).dtype;
    if (asked_type && *asked_type != to)
      return context.problem(
          Code::kBadModel,
          text("its output_dtype is ", ir::dtype_name(*asked_type), ", its zero point ", ir::dtype_name(to)),
          "leave output_dtype out");
  }
  // In the type that the node requests, otherwise the wider of the two.
  DType in = context.type(1).dtype;
  if (ir::is_floating(context.type(0).dtype) && context.type(0).dtype != in) in = DType::kFloat32;
  if (!ir::is_floating(in)) in = DType::kFloat32;
  GP_TRY(const std::optional<DType> precision, floating_attribute(context, "precision"));
  in = precision.value_or(in);
  GP_TRY(x, make.cast(x, in));
  GP_TRY(scale, make.cast(scale, in));
  GP_TRY(scale, make.spread(scale, shape, axis, block));
  std::optional<ValueId> zero_point;
  if (context.has_input(2)) {
    GP_TRY(ValueId value, context.value(2));
    // 8-bit floats have no zero point except zero.
    if (range_of(to) || to == DType::kFloat4E2M1) {
      GP_TRY(value, make.cast(value, DType::kFloat32));
      GP_TRY(value, make.spread(value, shape, axis, block));
      zero_point = value;
    }
  }
  GP_TRY(const ValueId made, make.quantize(x, scale, zero_point, to));
  context.bind(0, made);
  return Ok{};
}

/// The result has the scale's type.
Status lower_dequantize(NodeContext& context) {
  Quantized make(context);
  hold_scales(context, {1});
  const ir::Shape shape = context.type(0).shape;
  const int64_t axis = context.int_attribute("axis", 1);
  GP_TRY(const int64_t block, block_attribute(context));
  GP_TRY(ValueId x, context.value(0));
  GP_TRY(ValueId scale, context.value(1));
  DType to = ir::is_floating(context.type(1).dtype) ? context.type(1).dtype : DType::kFloat32;
  GP_TRY(const std::optional<DType> asked_type, floating_attribute(context, "output_dtype"));
  to = asked_type.value_or(to);
  // Differences of int32 are exact only in float64.
  const bool wide = context.type(0).dtype == DType::kInt32 || to == DType::kFloat64;
  const DType in = wide ? DType::kFloat64 : DType::kFloat32;
  GP_TRY(x, make.cast(x, in));
  if (context.has_input(2)) {
    GP_TRY(ValueId zero_point, make.input(2, in));
    GP_TRY(zero_point, make.spread(zero_point, shape, axis, block));
    GP_TRY(x, make.one("Sub", {x, zero_point}));
  }
  GP_TRY(x, make.cast(x, wide ? to : in));
  GP_TRY(scale, make.cast(scale, wide ? to : in));
  GP_TRY(scale, make.spread(scale, shape, axis, block));
  GP_TRY(x, make.one("Mul", {x, scale}));
  GP_TRY(x, make.cast(x, to));
  context.bind(0, x);
  return Ok{};
}

/// The range of the data, extended to include zero, in 255 steps
/// (https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html).
Status lower_dynamic_quantize(NodeContext& context) {
  Quantized make(context);
  GP_TRY(const ValueId x, context.value(0));
  std::vector<int64_t> axes;
  for (size_t i = 0; i < context.rank(0); ++i) axes.push_back(static_cast<int64_t>(i));
  const ir::Attributes all{{"axes", axes}, {"keepdims", int64_t{0}}};
  GP_TRY(ValueId highest, make.one("ReduceMax", {x}, all));
  GP_TRY(ValueId lowest, make.one("ReduceMin", {x}, all));
  GP_TRY(highest, make.one("Clip", {highest}, {{"min", 0.0}}));
  GP_TRY(lowest, make.one("Clip", {lowest}, {{"max", 0.0}}));
  GP_TRY(ValueId scale, make.one("Sub", {highest, lowest}));
  // All-zero data: as in ONNX's reference, and not 0 / 0.
  GP_TRY(const ValueId is_flat, make.one("Equal", {highest, lowest}));
  GP_TRY(const ValueId one, context.scalar(1, DType::kFloat32));
  GP_TRY(scale, make.one("Where", {is_flat, one, scale}));
  GP_TRY(const ValueId count, context.scalar(255, DType::kFloat32));
  GP_TRY(scale, make.one("Div", {scale, count}));
  GP_TRY(ValueId zero_point, make.one("Neg", {lowest}));
  GP_TRY(zero_point, make.one("Div", {zero_point, scale}));
  GP_TRY(zero_point, make.one("Clip", {zero_point}, {{"min", 0.0}, {"max", 255.0}}));
  GP_TRY(zero_point, make.one("Round", {zero_point}));
  GP_TRY(const ValueId made, make.quantize(x, scale, zero_point, DType::kUInt8));
  GP_TRY(zero_point, make.cast(zero_point, DType::kUInt8));
  context.bind(0, made);
  context.bind(1, scale);
  context.bind(2, zero_point);
  return Ok{};
}

Result<ValueId> product_of(Quantized& make, ValueId a, ValueId b) { return make.one("MatMul", {a, b}); }

Status lower_matmul_integer(NodeContext& context) {
  Quantized make(context);
  GP_TRY(ValueId a, context.value(0));
  GP_TRY(ValueId b, context.value(1));
  GP_TRY(a, make.centred(a, 2, DType::kFloat64, /*rows=*/true));
  GP_TRY(b, make.centred(b, 3, DType::kFloat64, /*rows=*/false));
  GP_TRY(ValueId product, product_of(make, a, b));
  GP_TRY(product, make.cast(product, DType::kInt64));
  GP_TRY(product, make.cast(product, DType::kInt32));
  context.bind(0, product);
  return Ok{};
}

/// a, its scale and zero point, b, its scale and zero point, those of the result.
Status lower_qlinear_matmul(NodeContext& context) {
  Quantized make(context);
  hold_scales(context, {1, 4, 6});
  GP_TRY(ValueId a, context.value(0));
  GP_TRY(ValueId b, context.value(3));
  GP_TRY(a, make.centred(a, 2, DType::kFloat64, /*rows=*/true));
  GP_TRY(b, make.centred(b, 5, DType::kFloat64, /*rows=*/false));
  GP_TRY(ValueId product, product_of(make, a, b));
  GP_TRY(ValueId a_scale, make.input(1, DType::kFloat64));
  GP_TRY(a_scale, make.of_rows(a_scale));
  GP_TRY(const ValueId b_scale, make.input(4, DType::kFloat64));
  GP_TRY(product, make.one("Mul", {product, a_scale}));
  GP_TRY(product, make.one("Mul", {product, b_scale}));
  GP_TRY(ValueId scale, make.input(6, DType::kFloat64));
  GP_TRY(scale, make.of_rows(scale));
  const DType to = context.type(7).dtype;
  std::optional<ValueId> zero_point;
  // 8-bit floats have no zero point except zero.
  if (range_of(to)) {
    GP_TRY(const ValueId value, context.value(7));
    GP_TRY(zero_point, make.of_rows(value));
  }
  GP_TRY(const ValueId made, make.quantize(product, scale, zero_point, to));
  context.bind(0, made);
  return Ok{};
}

/// The convolution of integers; data at `x`, weight at `w`, each followed by its zero point if it has one.
Result<ValueId> integer_convolution(NodeContext& context, Quantized& make, std::vector<ValueId> operands,
                                    const ir::Shape& weight) {
  GP_TRY(ir::Attributes attributes, convolution_attributes(context, weight));
  return make.one("Conv", std::move(operands), std::move(attributes));
}

/// A weight minus its zero point, one per output channel if there are several.
Result<ValueId> centred_weight(NodeContext& context, Quantized& make, size_t weight, size_t zero_point) {
  GP_TRY(ValueId w, context.value(weight));
  GP_TRY(w, make.cast(w, DType::kFloat64));
  if (!context.has_input(zero_point)) return w;
  GP_TRY(ValueId offset, make.input(zero_point, DType::kFloat64));
  GP_TRY(offset, make.spread(offset, context.type(weight).shape, 0, 0));
  return make.one("Sub", {w, offset});
}

Status lower_conv_integer(NodeContext& context) {
  Quantized make(context);
  GP_TRY(ValueId x, context.value(0));
  GP_TRY(x, make.centred(x, 2, DType::kFloat64, /*rows=*/false));
  GP_TRY(const ValueId w, centred_weight(context, make, 1, 3));
  GP_TRY(ValueId sums, integer_convolution(context, make, {x, w}, context.type(1).shape));
  GP_TRY(sums, make.cast(sums, DType::kInt64));
  GP_TRY(sums, make.cast(sums, DType::kInt32));
  context.bind(0, sums);
  return Ok{};
}

/// x, its scale and zero point, w, its scale and zero point, those of the result, and a bias of scale x * w.
Status lower_qlinear_conv(NodeContext& context) {
  Quantized make(context);
  hold_scales(context, {1, 4, 6});
  GP_TRY(ValueId x, context.value(0));
  GP_TRY(x, make.centred(x, 2, DType::kFloat64, /*rows=*/false));
  GP_TRY(const ValueId w, centred_weight(context, make, 3, 5));
  std::vector<ValueId> operands = {x, w};
  if (context.has_input(8)) {
    GP_TRY(const ValueId bias, make.input(8, DType::kFloat64));
    operands.push_back(bias);
  }
  GP_TRY(ValueId sums, integer_convolution(context, make, std::move(operands), context.type(3).shape));
  GP_TRY(const ValueId x_scale, make.input(1, DType::kFloat64));
  GP_TRY(ValueId w_scale, make.input(4, DType::kFloat64));
  GP_TRY(w_scale, make.spread(w_scale, make.type(sums).shape, 1, 0));
  GP_TRY(sums, make.one("Mul", {sums, x_scale}));
  GP_TRY(sums, make.one("Mul", {sums, w_scale}));
  GP_TRY(const ValueId scale, make.input(6, DType::kFloat64));
  GP_TRY(const ValueId zero_point, context.value(7));
  GP_TRY(const ValueId made, make.quantize(sums, scale, zero_point, context.type(7).dtype));
  context.bind(0, made);
  return Ok{};
}

}  // namespace

std::vector<HandlerEntry> quantized_handlers() {
  return {{"QuantizeLinear", lower_quantize},
          {"DequantizeLinear", lower_dequantize},
          {"DynamicQuantizeLinear", lower_dynamic_quantize},
          {"MatMulInteger", lower_matmul_integer},
          {"QLinearMatMul", lower_qlinear_matmul},
          {"ConvInteger", lower_conv_integer},
          {"QLinearConv", lower_qlinear_conv}};
}

}  // namespace graphpipe::frontend
