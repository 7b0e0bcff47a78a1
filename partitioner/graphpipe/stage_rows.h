#pragma once
// Rows of the table of candidate stages. All stages of a row start in the same element of a chain; each column adds the
// next element. In the chain a, b, c the row of b has the columns {b} and {b, c}.

#include <compare>
#include <map>
#include <vector>

#include "partitioner/graphpipe/search_space.h"

namespace graphpipe::partitioner {

enum class RowKind : uint8_t {
  kInterval,  // the element, then those after it
  kTail,      // tails of branches of the parallel element, then the elements after it
  kHead,      // heads of branches of the parallel element, then the elements before it
  kGroup,     // whole branches of the parallel element, nothing else
};

/// A part of a parallel element: its branches [first, last), of which the only one is cut at `cut` (its tail from
/// there, or its head up to there) where `cut` is above zero. None where `last` is zero.
struct BlockPart {
  int first = 0, last = 0, cut = 0;
  bool none() const { return last == 0; }
  auto operator<=>(const BlockPart&) const = default;
};

struct RowKey {
  RowKind kind = RowKind::kInterval;
  int chain = 0;
  int element = 0;
  BlockPart part;
  auto operator<=>(const RowKey&) const = default;
};

/// Columns beyond the first.
int row_steps(const SearchSpace& space, const RowKey& key);
/// The nodes of the first column, and those that column `step` (from 1) adds.
std::vector<ir::PlanNodeId> row_start(const SearchSpace& space, const RowKey& key);
const std::vector<ir::PlanNodeId>& row_step(const SearchSpace& space, const RowKey& key, int step);
/// All nodes of a column, ascending.
std::vector<ir::PlanNodeId> row_nodes(const SearchSpace& space, const RowKey& key, int column);

/// What the stages of a row cost: the options of each column that take at most `limit` per sample. The columns end with
/// the first whose stage takes more than that on any number of devices. Where nothing is left out for its time, `limit`
/// is infinite.
template <typename Option>
struct StageRow {
  RowKey key;
  double limit = -1;
  std::vector<std::vector<Option>> columns;
};

/// The rows that probes have asked for, kept from one to the next.
template <typename Option>
class StageRows {
 public:
  /// The row at `limit` or a larger one; `fill(row)` sets the columns of one that has only been filled for less.
  template <typename Fill>
  const StageRow<Option>& at(const RowKey& key, double limit, Fill fill) {
    StageRow<Option>& row = rows_[key];
    if (row.limit >= limit) return row;
    row = {.key = key, .limit = limit, .columns = {}};
    fill(row);
    return row;
  }

  /// The times per sample of all options in [low, high).
  std::vector<double> times_between(double low, double high) const {
    std::vector<double> times;
    for (const auto& [key, row] : rows_)
      for (const auto& column : row.columns)
        for (const Option& option : column)
          if (option.time_per_sample >= low && option.time_per_sample < high) times.push_back(option.time_per_sample);
    return times;
  }

 private:
  std::map<RowKey, StageRow<Option>> rows_;
};

}  // namespace graphpipe::partitioner
