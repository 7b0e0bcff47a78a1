#pragma once
// One element of a type, as files and memory have it.

#include <string>

#include "wire/element_type.h"

namespace graphpipe::wire {

/// The nearest value of the type, little-endian; bfloat16 cuts off what it cannot hold. Needs: a type that is computed
/// in, and of integers a number that they hold.
std::string element_bytes(ElementType type, double value);

}  // namespace graphpipe::wire
