#include "frontend/equal_parts.h"

namespace graphpipe::frontend {
namespace {

/// How many bytes the elements of one part along the axis take that lie together.
size_t bytes_of_part(const std::vector<int64_t>& dims, size_t axis, size_t element_bytes) {
  for (size_t i = axis + 1; i < dims.size(); ++i) element_bytes *= static_cast<size_t>(dims[i]);
  return element_bytes;
}

}  // namespace

bool is_uniform(std::string_view elements, size_t element_bytes) {
  return elements.size() <= element_bytes ||
         elements.substr(element_bytes) == elements.substr(0, elements.size() - element_bytes);
}

bool has_equal_parts(std::string_view elements, const std::vector<int64_t>& dims, size_t axis, size_t element_bytes) {
  const size_t part = bytes_of_part(dims, axis, element_bytes), whole = part * static_cast<size_t>(dims[axis]);
  for (size_t at = 0; at < elements.size(); at += whole)
    if (!is_uniform(elements.substr(at, whole), part)) return false;
  return true;
}

std::string first_parts(std::string_view elements, const std::vector<int64_t>& dims, size_t axis,
                        size_t element_bytes) {
  const size_t part = bytes_of_part(dims, axis, element_bytes), whole = part * static_cast<size_t>(dims[axis]);
  std::string first;
  for (size_t at = 0; at < elements.size(); at += whole) first += elements.substr(at, part);
  return first;
}

}  // namespace graphpipe::frontend
