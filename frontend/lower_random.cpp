// Ops that draw random numbers in the shape of their input, with the type given as ONNX's number.

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

Status lower_random_like(NodeContext& context) {
  ir::Attributes attributes;
  for (const std::string_view name : {"low", "high", "mean", "scale"})
    if (context.node().find(name) != nullptr) attributes.set(name, context.float_attribute(name, 0));
  if (context.node().find("dtype") != nullptr) {
    const int type = static_cast<int>(context.int_attribute("dtype", 0));
    const std::optional<ir::DType> dtype = dtype_of_onnx(type);
    if (!dtype)
      return context.problem(Code::kUnsupportedType, text("draws numbers of type ", onnx_type_name(type)),
                             "use a supported type");
    attributes.set("to", std::string(ir::dtype_name(*dtype)));
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs(context.node().op, {input}, std::move(attributes));
}

}  // namespace

std::vector<HandlerEntry> random_handlers() {
  return {{"Bernoulli", lower_random_like},
          {"RandomUniformLike", lower_random_like},
          {"RandomNormalLike", lower_random_like}};
}

}  // namespace graphpipe::frontend
