#pragma once
// Additions of numbers up to 1e-8, which the optimiser of PyTorch's default export takes for zero: those that keep a
// module from dividing by zero. The calls of the nodes behind still name what was added up: div(%linear, %add_9).

#include "frontend/model.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// A warning where a divisor, or the argument of a root or a logarithm, lacks such an addition: at zero the module is
/// finite, and the file is not.
void report_left_out_additions(const GraphBody& body, Diagnostics& notes);

}  // namespace graphpipe::frontend
