#pragma once
// Sets of numbers that are joined and never parted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace graphpipe {

template <typename Index = uint32_t>
class UnionFind {
 public:
  explicit UnionFind(size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), Index{0}); }

  size_t size() const { return parent_.size(); }
  /// The number that names the set: the smallest, but for join_into.
  Index find(Index item) {
    while (parent_[item] != item) item = parent_[item] = parent_[parent_[item]];
    return item;
  }
  /// Joins the set of `other` to that of `into`, which goes on naming it. Needs: both name their sets.
  void join_into(Index into, Index other) { parent_[other] = into; }
  /// Whether the two were in different sets.
  bool join(Index a, Index b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    parent_[std::max(a, b)] = std::min(a, b);
    return true;
  }

 private:
  std::vector<Index> parent_;
};

}  // namespace graphpipe
