#pragma once
// Weights that a run saves or keeps in a checkpoint: those that are not finite are of no use to what goes on from them.
// The model's outputs are looked at in the same way.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/io/safetensors.h"
#include "support/result.h"

namespace graphpipe::runtime {

/// The first of these tensors, on the CPU, that is not finite: "'fc.weight' element [0,2] is infinite".
std::optional<std::string> not_finite_tensor(const std::vector<NamedTensor>& tensors);

/// kCheckFailed: trained weights are not finite. `what` says of which weights not_finite_tensor() speaks.
Diagnostic weights_problem(std::string_view what, const std::string& found);

}  // namespace graphpipe::runtime
