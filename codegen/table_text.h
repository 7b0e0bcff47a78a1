#pragma once
// Pieces of the constant tables that generated files hold (rows of runtime/program.h).

#include <string>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::codegen {

/// Collects the dims of all tensors of a file into one array, kDims.
class TensorTable {
 public:
  /// "{ElementType::kFloat32, {kDims + 3, 2}, 0, 1}". Rows per sample are the factor of the batch axis.
  std::string row(const ir::Value& value);
  /// The definition of kDims; empty if no tensor has dims.
  std::string dims_array() const;

 private:
  std::vector<ir::Dim> dims_;
};

/// "constexpr TYPE NAME[] = {\n  row,\n ...};\n"; nothing if there are no rows.
std::string array_text(std::string_view type, std::string_view name, const std::vector<std::string>& rows);
/// "constexpr int32_t NAME[] = {...};\n", wrapped; one zero if there are no numbers.
std::string numbers_array_text(std::string_view name, const std::vector<size_t>& numbers);
/// The initialiser of a span member: the array's name, or "{}" if it has no rows.
std::string span_text(std::string_view name, size_t rows);

}  // namespace graphpipe::codegen
