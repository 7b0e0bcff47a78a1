#pragma once
// The arena of a device: one block of memory in which all tensors that a step makes have fixed places.
//
// The tensors and their lifetimes are those of the code of the stages (codegen/memory_walk.h), action after action in
// the order of the device's list; the places are found by the solver that the running program uses too
// (support/offsets.h, kStepOffsets). Whole pages, and one more for what the runtime asks for itself: labels that it
// counts, lists of rows. Weights, the optimizer's state and the versions of weights that a step finds or leaves outlive
// it and lie elsewhere; versions that are made and dropped within it have their places here.

#include "scheduler/memory/memory.h"

namespace graphpipe::scheduler {

/// A schedule with more tensors in a step, of all devices together, is not placed: it would take minutes.
inline constexpr size_t kMaxPlacedTensors = 40'000;

/// Of the processors that programs are generated for, in bytes.
inline constexpr int64_t kPage = 4096;

/// Per program of the schedule the bytes of its arena; nothing where there are more than kMaxPlacedTensors. Needs: what
/// memory_of needs, and a count of items.
std::vector<Bytes> arenas_of(const StageGraph& graph, const Schedule& schedule, const CountedItems& item);

}  // namespace graphpipe::scheduler
