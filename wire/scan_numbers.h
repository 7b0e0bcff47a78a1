#pragma once
// Looks through the numbers of a tensor for those that no training survives: infinities, NaN, ids of no row.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "wire/element_type.h"
#include "wire/id_bounds.h"

namespace graphpipe::wire {

/// The index of the first element that is an infinity or NaN; none where all are finite, or integers.
std::optional<size_t> first_not_finite(ElementType type, std::span<const std::byte> elements);

/// The index of the first integer that the bounds do not hold. Needs: bounds.bounded(), a type that is not floating.
std::optional<size_t> first_out_of_bounds(ElementType type, std::span<const std::byte> elements,
                                          const IdBounds& bounds);

/// An element of a type that is not floating.
int64_t integer_at(ElementType type, std::span<const std::byte> elements, size_t index);

/// "not a number (NaN)" or "infinite": what an element is that first_not_finite found.
const char* not_finite_name(ElementType type, std::span<const std::byte> elements, size_t index);
/// "[3,5]": where an element lies in a dense tensor of these dims.
std::string index_text(std::span<const int64_t> dims, size_t element);
/// "element [3,5] is infinite"; none where all are finite, or integers.
std::optional<std::string> find_not_finite(ElementType type, std::span<const int64_t> dims,
                                           std::span<const std::byte> elements);

}  // namespace graphpipe::wire
