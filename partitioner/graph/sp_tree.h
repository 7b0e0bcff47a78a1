#pragma once
// A series-parallel decomposition: every vertex (an operator, or a set of operators that stay together) is in exactly
// one leaf. Canonical: no child of a Series is a Series, none of a Parallel is a Parallel, none has a single child, and
// the children of a Parallel are ordered by their lowest vertex.

#include <cstddef>
#include <string>
#include <vector>

namespace graphpipe::partitioner {

struct SpTree {
  enum class Kind { kLeaf, kSeries, kParallel };
  Kind kind = Kind::kLeaf;
  /// The vertex, for leaves.
  size_t vertex = 0;
  std::vector<SpTree> children;

  static SpTree leaf(size_t vertex) { return {Kind::kLeaf, vertex, {}}; }
  /// Merge nested trees of the same kind and drop the level of a single child. Needs: at least one child.
  static SpTree series(std::vector<SpTree> children);
  static SpTree parallel(std::vector<SpTree> children);

  /// The vertices, in the order of the leaves.
  std::vector<size_t> vertices() const;
  size_t lowest_vertex() const;
  /// "(0;(1|2);3)": for tests and messages.
  std::string str() const;
  bool operator==(const SpTree&) const = default;
};

/// Of all vertices in the tree; `weight` is by vertex.
double weight_of(const SpTree& tree, const std::vector<double>& weight);

}  // namespace graphpipe::partitioner
