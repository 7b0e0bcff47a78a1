#pragma once
// Look-ups by several indices, x[i, j], of which TorchScript makes one in the flattened tensor: i * columns + j. A j
// that counts from the last column names a place of the row before.

#include <functional>

#include "frontend/known.h"
#include "frontend/model.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// An error if `refuses_losses`, else a warning, where such an index is known and has negative numbers. Of places that
/// the exporter has computed beforehand, as it does for constants in a table of parameters, nothing tells. `known_of`
/// tells what is known of a value of the file, or null.
void report_flat_places(const GraphBody& body, const std::function<const Known*(const std::string&)>& known_of,
                        bool refuses_losses, Diagnostics& notes);

}  // namespace graphpipe::frontend
