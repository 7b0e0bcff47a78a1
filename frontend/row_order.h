#pragma once
// In which order the rows of samples lie where an axis holds several of each sample.

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::frontend {

/// The axis of the batch; nothing where there is none, or where several hold it.
std::optional<size_t> only_batch_axis(const ir::Shape& shape);
/// The number of elements of the fixed dims from `first` on; nothing where one is not fixed, or where there are none or
/// too many.
std::optional<int64_t> product_from(const ir::Shape& shape, size_t first);

class RowOrder {
 public:
  /// How many rows of the value's batch axis, [c * B], lie together for each sample: c where a sample has its rows one
  /// behind the other, 1 where the samples lie side by side, as of [c, B]. Nothing where the nodes before it do not
  /// say. Needs: always the same graph, to which nodes were only appended since the last call.
  std::optional<int64_t> rows_per_step(const ir::Graph& graph, ir::ValueId value);

 private:
  std::vector<std::optional<int64_t>> rows_;  // by value, for the outputs of the nodes before `next_`
  size_t next_ = 0;
};

}  // namespace graphpipe::frontend
