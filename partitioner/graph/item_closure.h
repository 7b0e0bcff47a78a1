#pragma once
// Reachability of a DAG of items as bit rows.

#include <cstdint>
#include <vector>

#include "partitioner/graph/sp_decompose.h"

namespace graphpipe::partitioner {

class ItemClosure {
 public:
  explicit ItemClosure(const ItemGraph& graph) : words_((graph.size() + 63) / 64), rows_(graph.size() * words_, 0) {
    for (size_t i = graph.size(); i-- > 0;)
      for (size_t next : graph[i]) {
        rows_[i * words_ + next / 64] |= uint64_t{1} << (next % 64);
        for (size_t w = 0; w < words_; ++w) rows_[i * words_ + w] |= rows_[next * words_ + w];
      }
  }
  /// Whether a path of at least one edge leads from one to the other.
  bool reaches(size_t from, size_t to) const { return rows_[from * words_ + to / 64] >> (to % 64) & 1; }
  bool comparable(size_t a, size_t b) const { return reaches(a, b) || reaches(b, a); }

 private:
  size_t words_;
  std::vector<uint64_t> rows_;
};

}  // namespace graphpipe::partitioner
