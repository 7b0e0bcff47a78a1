#pragma once
// Sums x + (y - x), which are y: modules compute them as x + (y - x).detach(), so that the gradient passes to x as it
// is (rounding, quantised vectors), and seldom otherwise. A file that has lost the detach trains y in place of x.

#include <functional>

#include "frontend/model.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// A warning where values of floating type are added so; an error, if `refuses_losses`, where the nodes' calls do not
/// say that the module adds the difference itself. Only what it computes under no_grad() looks as if it did.
void report_straight_through(const GraphBody& body, const std::function<bool(const std::string&)>& is_floating,
                             bool refuses_losses, Diagnostics& notes);

}  // namespace graphpipe::frontend
