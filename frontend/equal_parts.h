#pragma once
// Along which axes the elements of a tensor repeat. All take elements in the order of the dims, as many as these say.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::frontend {

/// Whether all parts along the axis are the same.
bool has_equal_parts(std::string_view elements, const std::vector<int64_t>& dims, size_t axis, size_t element_bytes);

/// The first of the parts along the axis.
std::string first_parts(std::string_view elements, const std::vector<int64_t>& dims, size_t axis, size_t element_bytes);

/// Whether all elements are the same.
bool is_uniform(std::string_view elements, size_t element_bytes);

}  // namespace graphpipe::frontend
