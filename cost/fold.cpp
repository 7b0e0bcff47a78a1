#include "cost/fold.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ir/connected_components.h"
#include "support/digraph.h"

namespace graphpipe::cost {
namespace {

using ir::PlanNodeId;
using ir::SampleFunction;

SampleFunction per_sample(double value) { return SampleFunction::polynomial(0, value); }

/// Which nodes are merged: colocated sets, and everything on a cycle between them. Nodes are numbered by their position
/// in the file, so that ties are broken in that order.
class Groups {
 public:
  explicit Groups(const ir::PlanGraph& graph) : graph_(graph), sets_(graph.nodes.size()) {
    place_.resize(graph.nodes.size());
    for (uint32_t place = 0; place < graph.nodes.size(); ++place) place_[graph.file_order.nodes[place]] = place;
    for (const auto& members : graph.colocated)
      for (const PlanNodeId id : members) sets_.join(place_[members.front()], place_[id]);
    for (uint32_t place = 0; place < graph.nodes.size(); ++place) class_of_.push_back(sets_.find(place));
    for (const ir::PlanValue& value : graph.values)
      for (const PlanNodeId reader : value.readers)
        if (!is_backward(value.producer) && !is_backward(reader)) forward_.insert(classes(value.producer, reader));
    EdgeList edges;
    for_each_edge(
        [&](const ir::PlanValue&, PlanNodeId from, PlanNodeId to) { edges.emplace_back(place_[from], place_[to]); });
    ir::join_cycles(edges, sets_);
    number(edges);
  }

  /// The group of each node; groups are numbered from 0 in topological order.
  IdMap<PlanNodeId, PlanNodeId> group_of;
  size_t count = 0;

  /// Visits the edges between two forward or two backward nodes, the latter in the direction of the forward pass.
  template <typename Visit>
  void for_each_edge(Visit visit) const {
    for (const ir::PlanValue& value : graph_.values)
      for (const PlanNodeId reader : value.readers) {
        const PlanNodeId from = value.producer;
        if (!is_backward(from) && !is_backward(reader)) visit(value, from, reader);
        if (!is_backward(from) || !is_backward(reader)) continue;
        const auto [a, b] = classes(from, reader);
        if (forward_.contains({a, b}) && !forward_.contains({b, a})) visit(value, from, reader);
        else visit(value, reader, from);
      }
  }

 private:
  bool is_backward(PlanNodeId id) const { return graph_.nodes[id].is_backward; }
  std::pair<uint32_t, uint32_t> classes(PlanNodeId from, PlanNodeId to) const {
    return {class_of_[place_[from]], class_of_[place_[to]]};
  }

  void number(const EdgeList& edges) {
    EdgeList between;
    for (const auto& [from, to] : edges)
      if (sets_.find(from) != sets_.find(to)) between.emplace_back(sets_.find(from), sets_.find(to));
    std::vector<PlanNodeId> group(sets_.size());
    for (const uint32_t place : topological_order(sets_.size(), between))
      if (sets_.find(place) == place) group[place] = PlanNodeId(count++);
    group_of.resize(graph_.nodes.size());
    for (const PlanNodeId id : graph_.node_ids()) group_of[id] = group[sets_.find(place_[id])];
  }

  const ir::PlanGraph& graph_;
  UnionFind<> sets_;
  IdMap<PlanNodeId, uint32_t> place_;
  /// The colocated set by position, and the pairs of sets that are connected by an edge between forward nodes.
  std::vector<uint32_t> class_of_;
  std::set<std::pair<uint32_t, uint32_t>> forward_;
};

void add_price(const ir::PlanNode& node, ir::PlanNode& sum) {
  sum.add_seconds(node);
  sum.stash_to_input_gradient += node.stash_to_input_gradient;
  sum.buffer_bytes += node.buffer_bytes;
  sum.weights.insert(sum.weights.end(), node.weights.begin(), node.weights.end());
  if (sum.by_kind.empty()) sum.by_kind.resize(node.by_kind.size());
  for (size_t kind = 0; kind < node.by_kind.size(); ++kind) sum.by_kind[kind].add_seconds(node.by_kind[kind]);
  for (const int kind : node.refused_kinds)
    if (std::ranges::find(sum.refused_kinds, kind) == sum.refused_kinds.end()) sum.refused_kinds.push_back(kind);
}

/// Adds one value for each group that has readers in other groups.
void add_values(const ir::PlanGraph& graph, const Groups& groups, bool trains, ir::PlanGraph& out) {
  IdMap<PlanNodeId, std::map<PlanNodeId, double>> sent(groups.count);
  IdMap<PlanNodeId, std::set<PlanNodeId>> readers(groups.count);
  groups.for_each_edge([&](const ir::PlanValue& value, PlanNodeId from, PlanNodeId to) {
    const PlanNodeId a = groups.group_of[from], b = groups.group_of[to];
    if (a == b) return;
    readers[a].insert(b);
    if (graph.nodes[value.producer].is_backward) return;  // the forward edge gives the size
    double& size = sent[a][from];
    size = std::max(size, value.bytes.linear());
  });
  for (const PlanNodeId id : ids<PlanNodeId>(groups.count)) {
    if (readers[id].empty()) continue;
    double bytes = 0;
    for (const auto& [node, size] : sent[id]) bytes += size;
    ir::PlanValue value{
        .producer = id, .readers = {readers[id].begin(), readers[id].end()}, .bytes = per_sample(bytes)};
    if (trains) {
      value.gradient_bytes = value.bytes;
      value.gradient_readers = value.readers;
    }
    out.values.push_back(std::move(value));
  }
}

/// Bytes that the node's collectives move because its neighbours are in other stages.
double boundary_bytes(const ir::Assignment& assignment, PlanNodeId node, const ir::NodeAlternative& way) {
  double bytes = 0;
  for (const auto* side : {&way.from, &way.to})
    for (const ir::NodeAlternative::Boundary& boundary : *side)
      if (assignment.stage_of[boundary.neighbour] != assignment.stage_of[node]) bytes += boundary.bytes;
  return bytes;
}

}  // namespace

FoldedGraph fold_backward(const ir::PlanGraph& graph) {
  FoldedGraph folded;
  const bool has_halves = std::ranges::any_of(graph.nodes, &ir::PlanNode::is_backward);
  if (graph.file_order.nodes.empty() || (!has_halves && graph.colocated.empty())) {
    folded.graph = graph;
    for (const PlanNodeId id : graph.node_ids()) folded.node_of.push_back(id);
    return folded;
  }
  const Groups groups(graph);
  folded.node_of = groups.group_of;
  folded.graph.batch = graph.batch;
  folded.graph.optimizer_state_per_weight_byte = graph.optimizer_state_per_weight_byte;
  folded.graph.execution = graph.execution;
  folded.graph.versions = graph.versions;
  folded.graph.one_sample = graph.one_sample;
  folded.graph.kind_of_device = graph.kind_of_device;
  folded.graph.weight_groups = graph.weight_groups;
  folded.graph.nodes.resize(groups.count);
  bool trains = false;
  for (const PlanNodeId id : graph.file_order.nodes) {
    ir::PlanNode& node = folded.graph.nodes[groups.group_of[id]];
    if (node.label.empty()) node.label = graph.nodes[id].label;
    add_price(graph.nodes[id], node);
    trains = trains || graph.nodes[id].has_backward;
  }
  for (ir::PlanNode& node : folded.graph.nodes) {
    node.has_backward = trains;
    std::ranges::sort(node.refused_kinds);
  }
  add_values(graph, groups, trains, folded.graph);
  return folded;
}

Result<ir::Assignment> fold(const FoldedGraph& folded, const ir::Assignment& assignment) {
  ir::Assignment out{.choice = assignment.choice, .alternative = assignment.alternative};
  out.stage_of.resize(folded.graph.nodes.size());
  for (const PlanNodeId id : ids<PlanNodeId>(folded.node_of.size())) {
    ir::StageId& stage = out.stage_of[folded.node_of[id]];
    if (stage.valid() && stage != assignment.stage_of[id])
      return Diagnostic{.code = Code::kBadPlan,
                        .message = "layers that belong together are in two stages",
                        .hint = "such a plan has a price of its own, but no schedule"};
    stage = assignment.stage_of[id];
  }
  return out;
}

ir::Assignment unfold(const FoldedGraph& folded, const ir::Assignment& assignment) {
  ir::Assignment out{.choice = assignment.choice, .alternative = assignment.alternative};
  for (const PlanNodeId node : folded.node_of) out.stage_of.push_back(assignment.stage_of[node]);
  return out;
}

ir::PlanGraph with_alternatives(ir::PlanGraph graph, const ir::Assignment& assignment, double bandwidth) {
  if (assignment.alternative.empty()) return graph;
  for (const PlanNodeId id : graph.node_ids()) {
    ir::PlanNode& node = graph.nodes[id];
    if (node.alternatives.empty()) continue;
    const ir::NodeAlternative way = node.alternatives.at(static_cast<size_t>(assignment.alternative[id]));
    const SampleFunction collective = per_sample(boundary_bytes(assignment, id, way) / bandwidth);
    node.forward = way.seconds.forward + collective;
    node.input_gradient = node.has_backward ? way.seconds.input_gradient + collective : SampleFunction();
    node.weight_gradient = way.seconds.weight_gradient;
    if (node.has_backward) node.stash_to_input_gradient = per_sample(way.kept_bytes);
    node.buffer_bytes = Bytes(std::llround(std::clamp(way.fixed_bytes - 2 * way.weight_bytes, 0.0, 1e15)));
    node.weights.clear();
    if (way.weight_bytes > 0)
      node.weights = {graph.weight_groups.push_back({.bytes = Bytes(std::llround(std::min(way.weight_bytes, 1e15))),
                                                     .trainable = node.has_backward,
                                                     .name = node.label})};
  }
  return graph;
}

}  // namespace graphpipe::cost
