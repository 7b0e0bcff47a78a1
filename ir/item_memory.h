#pragma once
// What one item, a micro-batch on one replica of a stage, does to the memory of its device: counted tensor by tensor
// over the code of its stage (codegen/memory_walk.h), where the prices of a plan (cost/memory.h) are bounds.

#include <cstddef>
#include <map>
#include <vector>

#include "support/units.h"

namespace graphpipe::ir {

/// Memory of tensors that is taken or let go.
struct MemoryEvent {
  /// Of a kernel, which lets it go before it returns.
  static constexpr size_t kScratch = static_cast<size_t>(-1);
  /// The same number in all functions of an item.
  size_t storage = kScratch;
  Bytes bytes;
  bool taken = true;
};

/// What one function does, beside what the device holds when it starts.
struct FunctionMemory {
  /// The most that it holds at any time.
  Bytes peak;
  /// What it leaves; negative where it frees more than it makes.
  Bytes left;
  /// One after the other; what takes no bytes is left out.
  std::vector<MemoryEvent> events;
  /// Storages that it leaves as gradients of weights, for all later items of the update.
  std::vector<size_t> sums;
  /// Of these, the gradients of tables that hold what was looked up (wire/table_gradients.h), and the bytes of all
  /// rows, which the update makes of them.
  std::map<size_t, Bytes> tables;
};

/// What comes from other stages is there when a function starts, and is not counted as made by it.
struct ItemMemory {
  /// What comes from other stages for the forward, and for the backward.
  std::vector<MemoryEvent> values, gradients;
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
  /// What later items and the update add to these at most: the rows of tables that were not looked up.
  Bytes other_rows;
};

}  // namespace graphpipe::ir
