#pragma once
// The one rule of whether a step's gradients can be used.

#include <cstddef>
#include <optional>

#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// Of the state's gradients of the step, after their reduction, the first parameter (of StageEntry::params) whose
/// gradient holds an infinity or a NaN; absent where there is none. Needs: one update per step.
std::optional<size_t> not_finite_gradient(StageState& state);

}  // namespace graphpipe::runtime
