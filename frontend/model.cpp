#include "frontend/model.h"

#include <array>

namespace graphpipe::frontend {

const Attribute* OnnxNode::find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes)
    if (candidate.name == attribute) return &candidate;
  return nullptr;
}

std::optional<ir::DType> dtype_of_onnx(int onnx_type) {
  switch (onnx_type) {
    case 1:
      return ir::DType::kFloat32;
    case 2:
      return ir::DType::kUInt8;
    case 3:
      return ir::DType::kInt8;
    case 5:
      return ir::DType::kInt16;
    case 6:
      return ir::DType::kInt32;
    case 7:
      return ir::DType::kInt64;
    case 9:
      return ir::DType::kBool;
    case 10:
      return ir::DType::kFloat16;
    case 11:
      return ir::DType::kFloat64;
    case 16:
      return ir::DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::string onnx_type_name(int onnx_type) {
  static constexpr std::array<const char*, 17> kNames = {
      "undefined", "float",   "uint8",  "int8",   "uint16", "int16",     "int32",      "int64",   "string",
      "bool",      "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16"};
  if (onnx_type >= 0 && onnx_type < static_cast<int>(kNames.size())) return kNames[static_cast<size_t>(onnx_type)];
  return text("type ", onnx_type);
}

ModelText node_label(const OnnxNode& node) {
  if (!node.name.empty()) return ModelText(node.name);
  for (const std::string& output : node.outputs)
    if (!output.empty()) return ModelText(output);
  return ModelText(node.op);
}

}  // namespace graphpipe::frontend
