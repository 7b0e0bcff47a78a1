#pragma once
// The one rule for whether a step's gradients are usable.

#include <cstddef>
#include <optional>

#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// The first parameter (of StageEntry::params) whose reduced gradient of the step contains an infinity or NaN; absent
/// if there is none. Needs: one update per step.
std::optional<size_t> not_finite_gradient(StageState& state);

}  // namespace graphpipe::runtime
