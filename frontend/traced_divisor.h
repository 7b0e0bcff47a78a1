#pragma once
// Means that a module writes as a sum over the samples, divided by their number: `losses.sum() / x.shape[0]`. In a file
// with a fixed batch the divisor is the number that the export had.

#include <functional>

#include "frontend/known.h"
#include "frontend/model.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// What the graph has for a value of the file, and what is known of it; null where there is nothing.
struct ValueReaders {
  std::function<const ir::Shape*(const std::string&)> shape_of;
  std::function<const Known*(const std::string&)> known_of;
};

/// A warning that names the first node that divides a sum over the samples by a multiple of `traced`, the batch that
/// the file fixes.
void report_traced_divisor(const GraphBody& body, const ValueReaders& readers, int64_t traced, Diagnostics& notes);

}  // namespace graphpipe::frontend
