#pragma once
// When the gradients of a stage's parameters are complete, so that replicas may sum them while the rest of the backward
// still runs (runtime::GradientListener).

#include <cstddef>
#include <vector>

#include "codegen/cut_stages.h"

namespace graphpipe::codegen {

/// For each of StageCut::params, the number of steps after which its gradient is complete: of the steps of
/// input_gradient followed by those of weight_gradient, all up to the last that makes a share of it; 0 without shares.
std::vector<size_t> steps_to_last_share(const ir::Graph& graph, const StageCut& cut);

}  // namespace graphpipe::codegen
