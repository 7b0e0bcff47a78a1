#pragma once
// The types of tensor elements, on both sides of the wall: ir::DType and runtime::ElementType are this type.

#include <cstdint>
#include <string_view>

namespace graphpipe::wire {

enum class ElementType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kUInt16,
  kUInt32,
  kUInt64,
  // Those below are stored, not computed with: values are cast to another type first. One element is one byte, also
  // where files pack two or four in one.
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0,
  kFloat4E2M1,
  kInt4,
  kUInt4,
  kInt2,
  kUInt2
};

struct ElementTypeInfo {
  ElementType type;
  /// Of graph text, profiles and attributes.
  std::string_view short_name;
  /// What people read in messages; NumPy's spelling.
  std::string_view long_name;
  /// Of safetensors headers.
  std::string_view safetensors_name;
  /// The enumerator, for generated code.
  std::string_view enumerator;
  int64_t bytes;
  /// Can be trained in; not so the small floats, which are only stored.
  bool is_floating;
  /// TensorProto.DataType of onnx.proto.
  int onnx_type;
  /// Elements of a file's packed byte.
  int64_t packed = 1;
};

/// By the enumerator's number.
inline constexpr ElementTypeInfo kElementTypes[] = {
    {ElementType::kFloat32, "f32", "float32", "F32", "kFloat32", 4, true, 1},
    {ElementType::kFloat64, "f64", "float64", "F64", "kFloat64", 8, true, 11},
    {ElementType::kFloat16, "f16", "float16", "F16", "kFloat16", 2, true, 10},
    {ElementType::kBFloat16, "bf16", "bfloat16", "BF16", "kBFloat16", 2, true, 16},
    {ElementType::kInt64, "i64", "int64", "I64", "kInt64", 8, false, 7},
    {ElementType::kInt32, "i32", "int32", "I32", "kInt32", 4, false, 6},
    {ElementType::kInt16, "i16", "int16", "I16", "kInt16", 2, false, 5},
    {ElementType::kInt8, "i8", "int8", "I8", "kInt8", 1, false, 3},
    {ElementType::kUInt8, "u8", "uint8", "U8", "kUInt8", 1, false, 2},
    {ElementType::kBool, "bool", "bool", "BOOL", "kBool", 1, false, 9},
    {ElementType::kUInt16, "u16", "uint16", "U16", "kUInt16", 2, false, 4},
    {ElementType::kUInt32, "u32", "uint32", "U32", "kUInt32", 4, false, 12},
    {ElementType::kUInt64, "u64", "uint64", "U64", "kUInt64", 8, false, 13},
    {ElementType::kFloat8E4M3FN, "f8e4m3fn", "float8_e4m3fn", "F8_E4M3", "kFloat8E4M3FN", 1, false, 17},
    {ElementType::kFloat8E4M3FNUZ, "f8e4m3fnuz", "float8_e4m3fnuz", "F8_E4M3FNUZ", "kFloat8E4M3FNUZ", 1, false, 18},
    {ElementType::kFloat8E5M2, "f8e5m2", "float8_e5m2", "F8_E5M2", "kFloat8E5M2", 1, false, 19},
    {ElementType::kFloat8E5M2FNUZ, "f8e5m2fnuz", "float8_e5m2fnuz", "F8_E5M2FNUZ", "kFloat8E5M2FNUZ", 1, false, 20},
    {ElementType::kFloat8E8M0, "f8e8m0", "float8_e8m0fnu", "F8_E8M0", "kFloat8E8M0", 1, false, 24},
    {ElementType::kFloat4E2M1, "f4e2m1", "float4_e2m1fn", "F4_IN_U8", "kFloat4E2M1", 1, false, 23, 2},
    {ElementType::kInt4, "i4", "int4", "I4_IN_I8", "kInt4", 1, false, 22, 2},
    {ElementType::kUInt4, "u4", "uint4", "U4_IN_U8", "kUInt4", 1, false, 21, 2},
    {ElementType::kInt2, "i2", "int2", "I2_IN_I8", "kInt2", 1, false, 26, 4},
    {ElementType::kUInt2, "u2", "uint2", "U2_IN_U8", "kUInt2", 1, false, 25, 4},
};

/// Null for a number that is no element type.
constexpr const ElementTypeInfo* find_element_type(ElementType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kElementTypes) ? &kElementTypes[index] : nullptr;
}

/// The entry whose `field` is `name`, such as find_element_type(&ElementTypeInfo::short_name, "f32"); null where none.
constexpr const ElementTypeInfo* find_element_type(std::string_view ElementTypeInfo::*field, std::string_view name) {
  for (const ElementTypeInfo& info : kElementTypes)
    if (info.*field == name) return &info;
  return nullptr;
}

/// By the number of TensorProto.DataType; null where GraphPipe has no such type: strings and complex numbers.
constexpr const ElementTypeInfo* find_element_type_of_onnx(int64_t onnx_type) {
  for (const ElementTypeInfo& info : kElementTypes)
    if (info.onnx_type == onnx_type) return &info;
  return nullptr;
}

/// Whether operators compute in it; values of other types are moved and cast only.
constexpr bool is_computed_in(ElementType type) { return type <= ElementType::kBool; }
/// Small floats and integers of less than a byte.
constexpr bool is_stored_only(ElementType type) { return type >= ElementType::kFloat8E4M3FN; }

/// Of an element type, not of a number that is none.
constexpr int64_t element_size(ElementType type) { return kElementTypes[static_cast<size_t>(type)].bytes; }
constexpr std::string_view element_name(ElementType type) { return kElementTypes[static_cast<size_t>(type)].long_name; }

}  // namespace graphpipe::wire
