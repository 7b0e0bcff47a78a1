// Ops that are known at import time, and the remaining cases.

#include <algorithm>

#include "frontend/exported_call.h"
#include "frontend/full_size.h"
#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

/// A tensor with elements: known if small; a float tensor of several elements may be a weight, so nodes that read it
/// are kept.
Binding binding_of_bytes(ir::DType dtype, ir::Shape shape, std::string bytes) {
  Binding binding;
  binding.type = {dtype, shape};
  binding.known = decode_known(dtype, shape, bytes);
  binding.origin = ParamOrigin::kConstantNode;
  const bool may_be_weight = ir::is_floating(dtype) && !shape.empty() && !(binding.known && binding.known->uniform);
  binding.leaf = may_be_weight || !binding.known;
  if (binding.leaf) binding.data = ir::InlineData{std::move(bytes)};
  return binding;
}

template <typename T, typename From>
std::string dense(const std::vector<From>& items) {
  std::string bytes;
  for (const From item : items) {
    const T element = static_cast<T>(item);
    bytes.append(reinterpret_cast<const char*>(&element), sizeof(T));
  }
  return bytes;
}

Status lower_constant(NodeContext& context) {
  using Kind = Attribute::Kind;
  for (const Attribute& attribute : context.node().attributes) {
    const auto count = ir::Dim::fixed(
        static_cast<int64_t>(attribute.kind == Kind::kInts ? attribute.ints.size() : attribute.floats.size()));
    Binding binding;
    if (attribute.kind == Kind::kTensor && attribute.name == "value") {
      GP_TRY(binding, context.lowering().tensor_binding(attribute.tensor[0], node_label(context.node())));
      binding.origin = ParamOrigin::kConstantNode;
      const bool single = binding.known && binding.known->uniform;
      if (binding.known && (single || !ir::is_floating(binding.type.dtype))) binding.leaf = false, binding.data.reset();
    } else if (attribute.name == "value_int") {
      binding = binding_of_bytes(ir::DType::kInt64, {}, dense<int64_t>(std::vector{attribute.i}));
    } else if (attribute.name == "value_ints") {
      binding = binding_of_bytes(ir::DType::kInt64, {count}, dense<int64_t>(attribute.ints));
    } else if (attribute.name == "value_float") {
      binding = binding_of_bytes(ir::DType::kFloat32, {}, dense<float>(std::vector{attribute.f}));
    } else if (attribute.name == "value_floats") {
      binding = binding_of_bytes(ir::DType::kFloat32, {count}, dense<float>(attribute.floats));
    } else {
      return context.problem(Code::kUnsupportedType,
                             text("a constant given as ", quoted(ModelText(attribute.name)), " is not supported"),
                             "use numeric dense constants");
    }
    context.lowering().bind(context.node().outputs[0], std::move(binding));
    return Ok{};
  }
  return context.problem(Code::kBadModel, "holds no value", "export the model again");
}

/// The cases that evaluation leaves: values of types that it does not fold, and shapes that it does not know.
Status lower_constant_of_shape(NodeContext& context) {
  GP_TRY(ir::Shape shape, context.dims(0, "shape"));
  if (!ir::element_count(shape) || std::ranges::any_of(shape, [](ir::Dim dim) { return dim.factor < 0; }))
    return context.problem(Code::kBadModel, "its shape has a negative size or more than 2^48 elements",
                           "export the model again");
  const Attribute* value = context.node().find("value");
  if (value == nullptr || value->tensor.size() != 1)
    return context.problem(Code::kBadModel, "its value is no tensor", "export the model again");
  GP_TRY(Binding binding, context.lowering().tensor_binding(value->tensor[0], node_label(context.node())));
  if (ir::element_count(binding.type.shape) != ir::Dim::fixed(1))
    return context.problem(Code::kBadModel, "its value has not one element", "export the model again");
  if (!binding.data) return context.problem(Code::kBadModel, "its value cannot be read", "export the model again");
  binding.type.shape = {};
  binding.origin = ParamOrigin::kConstantNode;
  binding.name = text(context.node().outputs[0], " value");
  GP_TRY(const ir::ValueId one, context.lowering().value_of(binding, context.node()));
  return context.emit_outputs("Expand", {one}, {{"shape", std::move(shape)}});
}

Status lower_range(NodeContext& context) {
  const Known *start = context.known(0), *limit = context.known(1), *step = context.known(2);
  for (size_t i = 0; i < 3; ++i)
    if (const Known* bound = context.known(i); bound == nullptr || bound->elements.empty())
      return context.problem(
          Code::kUnresolvedShape,
          text("its bound ", quoted(ModelText(context.node().inputs[i])), " depends on data, and so would its length"),
          kFullSize);
  const Number& first = start->element(0);
  const Number& by = step->element(0);
  if (!by.is_fixed() || limit->element(0).floating || by.whole == 0)
    return context.problem(Code::kUnresolvedShape,
                           "this range of floats or in steps of the batch size is not supported",
                           "count with integers in constant steps");
  const std::optional<Number> span = subtract(limit->element(0), first);
  std::optional<Number> count = span ? divide(*span, by) : std::nullopt;
  // A partial step adds one more number.
  if (count && span->is_fixed() && span->whole % by.whole != 0 && (span->whole < 0) == (by.whole < 0)) ++count->whole;
  if (count && span->is_fixed()) count->whole = std::max<int64_t>(count->whole, 0);
  if (!count || count->whole < 0)
    return context.problem(Code::kUnresolvedShape, "its length is no multiple of the batch",
                           "compute it from sizes of inputs");
  ir::Attributes attributes{{"shape", ir::Shape{{count->whole, count->power}}},
                            {"start", first.is_fixed() ? static_cast<double>(first.whole) : 0.0},
                            {"delta", static_cast<double>(by.whole)},
                            {"to", std::string(ir::dtype_name(start->dtype))}};
  if (first.is_fixed()) return context.emit_outputs("Iota", {}, std::move(attributes));
  GP_TRY(const ir::ValueId begin, context.value(0));
  GP_TRY(const ir::ValueId steps, context.emit_one("Iota", {}, std::move(attributes)));
  return context.emit_outputs("Add", {begin, steps}, {});
}

/// Ones on one diagonal: a matrix of ones with the triangles above and below removed.
Status lower_eye_like(NodeContext& context) {
  const ir::Shape shape = context.type(0).shape;
  if (shape.size() != 2) return context.problem(Code::kBadModel, "needs an input of rank 2", "export the model again");
  std::optional<ir::DType> to = context.type(0).dtype;
  if (context.node().find("dtype") != nullptr) to = dtype_of_onnx(static_cast<int>(context.int_attribute("dtype", 0)));
  if (!to) return context.problem(Code::kUnsupportedType, "makes a matrix of another type", "use a supported type");
  ir::Attributes ones{{"shape", shape}, {"value", 1.0}, {"to", std::string(ir::dtype_name(*to))}};
  GP_TRY(std::vector<ir::ValueId> matrix, context.emit("Full", {}, std::move(ones)));
  const int64_t k = context.int_attribute("k", 0);
  GP_TRY(matrix, context.emit("Trilu", std::move(matrix), {{"k", k}, {"upper", int64_t{1}}}));
  return context.emit_outputs("Trilu", std::move(matrix), {{"k", k}, {"upper", int64_t{0}}});
}

Status lower_shape(NodeContext& context) {
  return context.problem(Code::kUnresolvedShape, "the shape of a sequence, or one beyond 2^48 elements",
                         "export without sequences");
}

/// torch's detach, which the exporter writes as an Identity with metadata.
Status lower_detach(NodeContext& context) {
  context.note(Severity::kNote, Code::kLostByExport,
               "the module detaches this value, which the operators of the file leave out: no gradient goes through "
               "it, as in PyTorch",
               "none needed");
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Detach", {input}, {});
}

Status lower_identity(NodeContext& context) {
  if (is_detached(context.node()) && ir::is_floating(context.type(0).dtype)) return lower_detach(context);
  context.lowering().bind_identity(context.node().outputs[0], context.node().inputs[0]);
  return Ok{};
}

/// Optional and OptionalGetElement of a tensor: the tensor itself.
Status lower_optional(NodeContext& context) {
  if (context.has_input(0)) {
    context.bind_alias();
    return Ok{};
  }
  Binding absent;
  absent.is_absent = true;
  context.lowering().bind(context.node().outputs[0], std::move(absent));
  return Ok{};
}

/// The file determines whether there is an element.
Status lower_optional_has_element(NodeContext& context) {
  const bool is_there = context.has_input(0) && !context.input(0).is_absent;
  Binding binding;
  binding.type = {ir::DType::kBool, {}};
  binding.known = Known::scalar(ir::DType::kBool, Number::of_whole(is_there ? 1 : 0));
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

Status lower_cast(NodeContext& context) {
  GP_TRY(const ir::ValueId input, context.value(0));
  std::optional<ir::DType> to;
  if (context.node().op == "CastLike") to = context.type(1).dtype;
  else to = dtype_of_onnx(static_cast<int>(context.int_attribute("to", 0)));
  if (!to) {
    const auto wanted = static_cast<int>(context.int_attribute("to", 0));
    const bool means_bfloat16 = onnx_type_name(wanted) == "complex128" && context.lowering().from_torch();
    return context.problem(Code::kUnsupportedType, text("casts to ", onnx_type_name(wanted)),
                           means_bfloat16
                               ? "PyTorch's TorchScript exporter writes this for .bfloat16(): export with dynamo=True"
                               : "use a supported type");
  }
  if (*to == context.type(0).dtype) {
    context.bind_alias();
    return Ok{};
  }
  ir::Attributes attributes{{"to", std::string(ir::dtype_name(*to))}};
  if (wire::is_stored_only(*to)) {
    attributes.set("saturate", context.int_attribute("saturate", 1));
    attributes.set("round_mode", context.string_attribute("round_mode", "up"));
  }
  return context.emit_outputs("Cast", {input}, std::move(attributes));
}

}  // namespace

std::vector<HandlerEntry> constant_handlers() {
  return {{"Constant", lower_constant},
          {"ConstantOfShape", lower_constant_of_shape},
          {"Range", lower_range},
          {"EyeLike", lower_eye_like},
          {"Shape", lower_shape},
          {"Size", lower_shape},
          {"Identity", lower_identity},
          {"Cast", lower_cast},
          {"CastLike", lower_cast, ops::Dependence::kElement},
          {"Optional", lower_optional},
          {"OptionalGetElement", lower_optional},
          {"OptionalHasElement", lower_optional_has_element}};
}

}  // namespace graphpipe::frontend
