#include "partitioner/graphpipe/stage_rows.h"

#include <algorithm>

namespace graphpipe::partitioner {

namespace {

const SearchElement& element_at(const SearchSpace& space, int chain, int index) {
  return space.chains[static_cast<size_t>(chain)].elements[static_cast<size_t>(index)];
}

}  // namespace

int row_steps(const SearchSpace& space, const RowKey& key) {
  if (key.kind == RowKind::kGroup) return 0;
  if (key.kind == RowKind::kHead) return key.element;
  return static_cast<int>(space.chains[static_cast<size_t>(key.chain)].elements.size()) - 1 - key.element;
}

std::vector<ir::PlanNodeId> row_start(const SearchSpace& space, const RowKey& key) {
  const SearchElement& start = element_at(space, key.chain, key.element);
  if (key.kind == RowKind::kInterval) return start.nodes;
  std::vector<ir::PlanNodeId> nodes;
  for (int branch = key.part.first; branch < key.part.last; ++branch) {
    const auto& elements = space.chains[static_cast<size_t>(start.branches[static_cast<size_t>(branch)])].elements;
    for (size_t i = 0; i < elements.size(); ++i) {
      const bool in_tail = static_cast<int>(i) >= key.part.cut;
      if (key.part.cut > 0 && in_tail != (key.kind == RowKind::kTail)) continue;
      nodes.insert(nodes.end(), elements[i].nodes.begin(), elements[i].nodes.end());
    }
  }
  return nodes;
}

const std::vector<ir::PlanNodeId>& row_step(const SearchSpace& space, const RowKey& key, int step) {
  return element_at(space, key.chain, key.element + (key.kind == RowKind::kHead ? -step : step)).nodes;
}

std::vector<ir::PlanNodeId> row_nodes(const SearchSpace& space, const RowKey& key, int column) {
  std::vector<ir::PlanNodeId> nodes = row_start(space, key);
  for (int step = 1; step <= column; ++step) {
    const auto& more = row_step(space, key, step);
    nodes.insert(nodes.end(), more.begin(), more.end());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace graphpipe::partitioner
