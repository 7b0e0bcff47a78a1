#include "ir/connected_components.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/biconnected_components.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/property_map/property_map.hpp>
#include <map>
#include <utility>

#include "support/sort_unique.h"

namespace graphpipe::ir {

std::vector<uint32_t> strongly_connected_components(size_t nodes, const EdgeList& edges) {
  const boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS> graph(edges.begin(), edges.end(), nodes);
  std::vector<uint32_t> part(nodes);
  boost::strong_components(graph, boost::make_iterator_property_map(part.begin(), get(boost::vertex_index, graph)));
  return part;
}

std::vector<uint32_t> biconnected_components(size_t nodes, const EdgeList& edges) {
  // Boost leaves out the second of two edges between the same nodes, so it sees each pair once.
  EdgeList pairs;
  for (const auto& [one, other] : edges) pairs.push_back(std::minmax(one, other));
  EdgeList once = pairs;
  sort_unique(once);

  using Number = boost::property<boost::edge_index_t, size_t>;
  boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property, Number> graph(nodes);
  for (size_t i = 0; i < once.size(); ++i) add_edge(once[i].first, once[i].second, Number(i), graph);
  std::vector<uint32_t> part_of(once.size());
  boost::biconnected_components(graph,
                                boost::make_iterator_property_map(part_of.begin(), get(boost::edge_index, graph)));
  std::vector<uint32_t> part;
  for (const auto& pair : pairs) part.push_back(part_of[std::ranges::lower_bound(once, pair) - once.begin()]);
  return part;
}

void join_cycles(const EdgeList& edges, UnionFind<>& sets) {
  EdgeList between;
  for (const auto& [from, to] : edges)
    if (sets.find(from) != sets.find(to)) between.emplace_back(sets.find(from), sets.find(to));
  const std::vector<uint32_t> part = strongly_connected_components(sets.size(), between);
  std::map<uint32_t, uint32_t> first_of;
  for (uint32_t node = 0; node < sets.size(); ++node)
    sets.join(first_of.emplace(part[sets.find(node)], node).first->second, node);
}

}  // namespace graphpipe::ir
