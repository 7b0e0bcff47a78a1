#include "partitioner/graph/connected_parts.h"

#include <algorithm>

namespace graphpipe::partitioner {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// A node that is being visited, and the next of its edges to look at.
struct Frame {
  uint32_t node, edge_in;
  size_t next = 0;
};

struct Link {
  uint32_t other, edge;
};

}  // namespace

std::vector<uint32_t> strongly_connected_parts(size_t nodes, const DagEdges& edges) {
  std::vector<std::vector<uint32_t>> readers(nodes);
  for (const auto& [from, to] : edges) readers[from].push_back(to);
  std::vector<uint32_t> number(nodes, kNone), low(nodes), part(nodes, kNone), open;
  std::vector<Frame> stack;
  uint32_t visited = 0, parts = 0;
  const auto enter = [&](uint32_t node) {
    number[node] = low[node] = visited++;
    open.push_back(node);
    stack.push_back({node, kNone});
  };
  for (uint32_t root = 0; root < nodes; ++root) {
    if (number[root] == kNone) enter(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const uint32_t node = frame.node;
      if (frame.next < readers[node].size()) {
        const uint32_t reader = readers[node][frame.next++];
        if (number[reader] == kNone) enter(reader);
        else if (part[reader] == kNone) low[node] = std::min(low[node], number[reader]);
        continue;
      }
      stack.pop_back();
      if (!stack.empty()) low[stack.back().node] = std::min(low[stack.back().node], low[node]);
      if (low[node] != number[node]) continue;
      while (part[node] == kNone) {
        part[open.back()] = parts;
        open.pop_back();
      }
      ++parts;
    }
  }
  return part;
}

std::vector<uint32_t> biconnected_parts(size_t nodes, const DagEdges& edges) {
  std::vector<std::vector<Link>> links(nodes);
  for (uint32_t edge = 0; edge < edges.size(); ++edge) {
    links[edges[edge].first].push_back({edges[edge].second, edge});
    links[edges[edge].second].push_back({edges[edge].first, edge});
  }
  std::vector<uint32_t> number(nodes, kNone), low(nodes), part(edges.size(), kNone), open;
  std::vector<Frame> stack;
  uint32_t visited = 0, parts = 0;
  const auto enter = [&](uint32_t node, uint32_t edge_in) {
    number[node] = low[node] = visited++;
    stack.push_back({node, edge_in});
  };
  for (uint32_t root = 0; root < nodes; ++root) {
    if (number[root] == kNone) enter(root, kNone);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const uint32_t node = frame.node, edge_in = frame.edge_in;
      if (frame.next < links[node].size()) {
        const Link link = links[node][frame.next++];
        if (link.edge == edge_in) continue;
        if (number[link.other] == kNone) {
          open.push_back(link.edge);
          enter(link.other, link.edge);
        } else if (number[link.other] < number[node]) {
          open.push_back(link.edge);
          low[node] = std::min(low[node], number[link.other]);
        }
        continue;
      }
      stack.pop_back();
      if (stack.empty()) continue;
      const uint32_t above = stack.back().node;
      low[above] = std::min(low[above], low[node]);
      if (low[node] < number[above]) continue;
      while (part[edge_in] == kNone) {
        part[open.back()] = parts;
        open.pop_back();
      }
      ++parts;
    }
  }
  return part;
}

}  // namespace graphpipe::partitioner
