#include "frontend/model.h"

#include <array>

namespace graphpipe::frontend {

const Attribute* OnnxNode::find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes)
    if (candidate.name == attribute) return &candidate;
  return nullptr;
}

std::optional<ir::DType> dtype_of_onnx(int onnx_type) {
  const wire::ElementTypeInfo* info = wire::find_element_type_of_onnx(onnx_type);
  return info == nullptr ? std::nullopt : std::optional(info->type);
}

std::string onnx_type_name(int onnx_type) {
  static constexpr std::array<const char*, 17> kNames = {
      "undefined", "float",   "uint8",  "int8",   "uint16", "int16",     "int32",      "int64",   "string",
      "bool",      "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16"};
  if (onnx_type >= 0 && onnx_type < static_cast<int>(kNames.size())) return kNames[static_cast<size_t>(onnx_type)];
  if (const std::optional<ir::DType> dtype = dtype_of_onnx(onnx_type)) return std::string(wire::element_name(*dtype));
  return text("type ", onnx_type);
}

std::string declared_text(const ValueInfo& info) {
  std::string result;
  for (const DeclaredDim& dim : info.dims) {
    if (!result.empty()) result += ", ";
    if (dim.size) result += std::to_string(*dim.size);
    else result += dim.symbol.empty() ? "?" : quoted(ModelText(dim.symbol));
  }
  return text("[", result, "]");
}

ModelText node_label(const OnnxNode& node) {
  if (!node.name.empty()) return ModelText(node.name);
  for (const std::string& output : node.outputs)
    if (!output.empty()) return ModelText(output);
  return ModelText(node.op);
}

}  // namespace graphpipe::frontend
