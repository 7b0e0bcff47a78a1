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
  kBool
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
  bool is_floating;
};

/// By the enumerator's number.
inline constexpr ElementTypeInfo kElementTypes[] = {
    {ElementType::kFloat32, "f32", "float32", "F32", "kFloat32", 4, true},
    {ElementType::kFloat64, "f64", "float64", "F64", "kFloat64", 8, true},
    {ElementType::kFloat16, "f16", "float16", "F16", "kFloat16", 2, true},
    {ElementType::kBFloat16, "bf16", "bfloat16", "BF16", "kBFloat16", 2, true},
    {ElementType::kInt64, "i64", "int64", "I64", "kInt64", 8, false},
    {ElementType::kInt32, "i32", "int32", "I32", "kInt32", 4, false},
    {ElementType::kInt16, "i16", "int16", "I16", "kInt16", 2, false},
    {ElementType::kInt8, "i8", "int8", "I8", "kInt8", 1, false},
    {ElementType::kUInt8, "u8", "uint8", "U8", "kUInt8", 1, false},
    {ElementType::kBool, "bool", "bool", "BOOL", "kBool", 1, false},
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

/// Of an element type, not of a number that is none.
constexpr int64_t element_size(ElementType type) { return kElementTypes[static_cast<size_t>(type)].bytes; }
constexpr std::string_view element_name(ElementType type) { return kElementTypes[static_cast<size_t>(type)].long_name; }

}  // namespace graphpipe::wire
