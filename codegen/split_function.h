#pragma once
// One phase of a stage as parts. Values that one part computes and a later one reads are handed on in an array of
// tensors, t.

#include <vector>

#include "codegen/function_writer.h"
#include "codegen/part_ranges.h"
#include "codegen/slot_layout.h"

namespace graphpipe::codegen {

struct FunctionPart {
  std::vector<Step> steps;
  std::vector<Load> loads;
  std::vector<Store> stores;
  std::vector<Place> clears;
  bool repeats = false;
};

struct SplitFunction {
  std::vector<FunctionPart> parts;
  /// Number of tensors in t; zero if there is one part.
  size_t handed_on = 0;
};

SplitFunction split_function(const ir::Graph& graph, const std::vector<Step>& steps, const FunctionPlaces& places,
                             std::span<const PartRange> ranges);

}  // namespace graphpipe::codegen
