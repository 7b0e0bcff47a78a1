#pragma once
// Splits a long function into parts, so that layers that a model repeats become parts with the same text, which are
// compiled once (block_table.h).

#include <span>
#include <vector>

#include "codegen/function_writer.h"

namespace graphpipe::codegen {

/// Steps [begin, end) of a function.
struct PartRange {
  size_t begin = 0, end = 0;
  /// Whether it is one of several ranges that do the same, as far as operators and types show.
  bool repeats = false;
  bool operator==(const PartRange&) const = default;
};

/// Ranges of at most `max_steps` steps that cover all of them in order; at least one, and exactly one for a short
/// function.
///
/// The longest stretch in which the operators and types of `period` steps repeat is found first, then what lies before
/// and after it is searched in the same way. In e a b c a b c a b c d it is (a b c) three times. Of the possible starts
/// of the period, the one that the fewest values cross is chosen.
std::vector<PartRange> part_ranges(const ir::Graph& graph, std::span<const Step> steps, size_t max_steps);

}  // namespace graphpipe::codegen
