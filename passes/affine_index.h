#pragma once
// Integer values of a graph that are known as functions of the position: element [i, j, ...] is offset + a * i + b * j
// ... Exporters write `x[arange(n), ...]`, attention masks and strided views with such values.

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::passes {

struct AffineIndex {
  int64_t offset = 0;
  /// One per axis; 0 where the axis has size 1.
  std::vector<int64_t> strides;
};

/// The formulas of a graph's values; the graph may grow between two queries.
class AffineIndices {
 public:
  /// Null if the value has no such formula, or its numbers exceed 2^48.
  const AffineIndex* find(const ir::Graph& graph, ir::ValueId value);

 private:
  void extend(const ir::Graph& graph);
  void note_param(const ir::Graph& graph, const ir::Param& param);
  std::optional<AffineIndex> formula(const ir::Graph& graph, const ir::Node& node) const;
  std::optional<AffineIndex> sum(const ir::Graph& graph, const ir::Node& node, int64_t sign) const;
  std::optional<AffineIndex> product(const ir::Graph& graph, const ir::Node& node) const;

  size_t params_ = 0, nodes_ = 0;
  IdMap<ir::ValueId, std::optional<AffineIndex>> known_;
};

}  // namespace graphpipe::passes
