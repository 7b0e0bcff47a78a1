#pragma once
// Rows of the table of candidate stages. All stages of a row start in the same element of a chain; each column adds the
// next element. In the chain a, b, c the row of b has the columns {b} and {b, c}.

#include <compare>
#include <vector>

#include "partitioner/graphpipe/search_space.h"

namespace graphpipe::partitioner {

enum class RowKind : uint8_t {
  kInterval,  // the element, then those after it
  kTail,      // tails of branches of the parallel element, then the elements after it
  kHead,      // heads of branches of the parallel element, then the elements before it
  kGroup,     // whole branches of the parallel element, nothing else
};

/// Branches [first, last) of the element, of which the only one is cut at `cut` (its tail from there, or its head up to
/// there) where `cut` is above zero.
struct RowKey {
  RowKind kind = RowKind::kInterval;
  int chain = 0;
  int element = 0;
  int first = 0, last = 0, cut = 0;
  auto operator<=>(const RowKey&) const = default;
};

/// Columns beyond the first.
int row_steps(const SearchSpace& space, const RowKey& key);
/// The nodes of the first column, and those that column `step` (from 1) adds.
std::vector<ir::PlanNodeId> row_start(const SearchSpace& space, const RowKey& key);
const std::vector<ir::PlanNodeId>& row_step(const SearchSpace& space, const RowKey& key, int step);
/// All nodes of a column, ascending.
std::vector<ir::PlanNodeId> row_nodes(const SearchSpace& space, const RowKey& key, int column);

}  // namespace graphpipe::partitioner
