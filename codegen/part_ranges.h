#pragma once
// Where a long function is cut into parts, so that layers which a model repeats become parts of the same text, which
// are compiled once (block_table.h).

#include <span>
#include <vector>

#include "codegen/function_writer.h"

namespace graphpipe::codegen {

/// Steps [begin, end) of a function.
struct PartRange {
  size_t begin = 0, end = 0;
  /// One of several ranges that do the same, as far as operators and types tell.
  bool repeats = false;
  bool operator==(const PartRange&) const = default;
};

/// Ranges of at most `max_steps` steps that cover all of them in order; at least one, and one where there are few.
///
/// The longest stretch in which the operators and types of `period` steps come again and again is found first, then
/// what lies before and after it is searched in the same way. In e a b c a b c a b c d it is (a b c) three times. Of
/// the places where the period may begin the one is taken that the fewest values cross.
std::vector<PartRange> part_ranges(const ir::Graph& graph, std::span<const Step> steps, size_t max_steps);

}  // namespace graphpipe::codegen
