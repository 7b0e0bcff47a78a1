#pragma once
// What one item, a micro-batch on one replica of a stage, does to the memory of its device: counted tensor by tensor
// over the code of its stage (codegen/memory_walk.h), where the prices of a plan (cost/memory.h) are bounds.

#include "support/units.h"

namespace graphpipe::ir {

/// What one function does, beside what the device holds when it starts.
struct FunctionMemory {
  /// The most that it holds at any time.
  Bytes most;
  /// What it leaves; negative where it frees more than it makes.
  Bytes left;
};

/// What comes from other stages is there when a function starts, and is not counted as made by it.
struct ItemMemory {
  /// With the item's data.
  FunctionMemory forward;
  /// The forward again, where the stage recomputes.
  FunctionMemory again;
  FunctionMemory input_gradient;
  FunctionMemory weight_gradient;
  /// Both, in one function where the stage joins them (codegen/cut_stages.h).
  FunctionMemory backward;
  /// Those that make the gradients of weights, which later ones add to; `left` does not count these.
  FunctionMemory first_weight_gradient, first_backward;
  Bytes weight_gradients;
};

}  // namespace graphpipe::ir
