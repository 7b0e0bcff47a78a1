#include "codegen/table_text.h"

namespace graphpipe::codegen {
namespace {

std::string_view element_type(ir::DType dtype) { return wire::find_element_type(dtype)->enumerator; }

}  // namespace

std::string TensorTable::row(const ir::Value& value) {
  const ir::Shape& shape = value.type.shape;
  const size_t first = dims_.size();
  dims_.insert(dims_.end(), shape.begin(), shape.end());
  const bool has_axis = value.batch == ir::BatchKind::kAxis;
  const int64_t rows = has_axis ? shape[static_cast<size_t>(value.batch_axis)].factor : 1;
  const std::string dims = shape.empty() ? "{}" : text("{kDims + ", first, ", ", shape.size(), "}");
  return text("{ElementType::", element_type(value.type.dtype), ", ", dims, ", ", has_axis ? value.batch_axis : -1,
              ", ", rows, "}");
}

std::string TensorTable::dims_array() const {
  std::vector<std::string> rows;
  for (const ir::Dim& dim : dims_) rows.push_back(text("{", dim.factor, ", ", dim.power, "}"));
  return array_text("DimRow", "kDims", rows);
}

std::string array_text(std::string_view type, std::string_view name, const std::vector<std::string>& rows) {
  if (rows.empty()) return {};
  std::string result = text("constexpr ", type, " ", name, "[] = {\n");
  for (const std::string& row : rows) result += text("    ", row, ",\n");
  return result + "};\n";
}

std::string numbers_array_text(std::string_view name, const std::vector<size_t>& numbers) {
  constexpr size_t kPerLine = 16;
  std::string result = text("constexpr int32_t ", name, "[] = {");
  for (size_t i = 0; i < numbers.size(); ++i)
    result += text(i == 0 ? "" : ",", i % kPerLine == 0 ? "\n    " : " ", numbers[i]);
  return result + (numbers.empty() ? "0};\n" : "};\n");
}

std::string span_text(std::string_view name, size_t rows) { return rows == 0 ? "{}" : std::string(name); }

}  // namespace graphpipe::codegen
