#pragma once
// A series-parallel decomposition: every item (an operator, or a set of operators that stay together) is in exactly one
// leaf. Canonical: no child of a Series is a Series, none of a Parallel is a Parallel, none has a single child, and the
// children of a Parallel are ordered by their lowest item.

#include <cstddef>
#include <string>
#include <vector>

namespace graphpipe::partitioner {

struct SpTree {
  enum class Kind { kLeaf, kSeries, kParallel };
  Kind kind = Kind::kLeaf;
  /// The item, for leaves.
  size_t item = 0;
  std::vector<SpTree> children;

  static SpTree leaf(size_t item) { return {Kind::kLeaf, item, {}}; }
  /// Merge nested trees of the same kind and drop the level of a single child. Needs: at least one child.
  static SpTree series(std::vector<SpTree> children);
  static SpTree parallel(std::vector<SpTree> children);

  /// The items, in the order of the leaves.
  std::vector<size_t> items() const;
  size_t lowest_item() const;
  /// "(0;(1|2);3)": for tests and messages.
  std::string str() const;
  bool operator==(const SpTree&) const = default;
};

}  // namespace graphpipe::partitioner
