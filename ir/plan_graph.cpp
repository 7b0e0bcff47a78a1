#include "ir/plan_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "support/sort_unique.h"

namespace graphpipe::ir {

namespace {

/// Finite, and not negative anywhere a sample count can reach.
bool is_sound(const SampleFunction& f) {
  for (const auto& point : f.points())
    if (!std::isfinite(point.value) || !std::isfinite(point.samples)) return false;
  for (double c : {f.constant(), f.linear(), f.quadratic()})
    if (!std::isfinite(c) || c < 0) return false;
  return true;
}

constexpr std::array<std::string_view, 3> kScopes = {"each", "micro-batch", "batch"};

class PlanGraphVerifier {
 public:
  explicit PlanGraphVerifier(const PlanGraph& graph) : graph_(graph) {}

  Status run() {
    if (graph_.batch.count < 1) report({}, text("the batch is ", graph_.batch), "give a batch of at least one sample");
    const double state = graph_.optimizer_state_per_weight_byte;
    if (!std::isfinite(state) || state < 0)
      report({}, "the optimizer state per weight byte is not a number of at least 0", "use 0, 1 or 2");
    for (const int kind : graph_.kind_of_device)
      if (kind < 0) report({}, text("a device is of kind ", kind), "number the kinds of devices from 0");
    for (const WeightGroup& group : graph_.weight_groups)
      if (group.bytes.count < 0) report(group.name, "a weight has negative bytes", "correct the profile");
    for (PlanNodeId id : graph_.node_ids()) check_node(id);
    for (PlanValueId id : graph_.value_ids()) check_value(id);
    for (const auto& set : graph_.colocated)
      for (PlanNodeId node : set)
        if (node.index() >= graph_.nodes.size()) report({}, "a colocated node does not exist", "correct the profile");
    if (problems_.empty()) return Ok{};
    return std::move(problems_);
  }

 private:
  void report(const ModelText& origin, std::string message, std::string hint) {
    problems_.push_back(
        {.code = Code::kBadProfile, .origin = origin, .message = std::move(message), .hint = std::move(hint)});
  }

  void check_node(PlanNodeId id) {
    const PlanNode& node = graph_.nodes[id];
    for (const SampleFunction* f :
         {&node.forward, &node.input_gradient, &node.weight_gradient, &node.stash_to_input_gradient,
          &node.stash_to_weight_gradient, &node.kept_gradients, &node.workspace, &node.host_transfer})
      if (!is_sound(*f))
        report(node.label, text("node ", id, " has a negative or infinite cost"), "costs are finite and at least 0");
    for (const PassSeconds& seconds : node.by_kind)
      for (const SampleFunction* f : {&seconds.forward, &seconds.input_gradient, &seconds.weight_gradient})
        if (!is_sound(*f))
          report(node.label, text("node ", id, " has a negative or infinite cost"), "costs are finite and at least 0");
    const bool all_priced = graph_.kind_of_device.empty() ? node.by_kind.size() == graph_.nodes.begin()->by_kind.size()
                                                          : std::ssize(node.by_kind) >= graph_.kind_count();
    if (!all_priced)
      report(node.label,
             text("node ", id, " has costs on ", node.by_kind.size(), " kinds of devices, there are ",
                  graph_.kind_count()),
             "price each node on each kind");
    check_alternatives(node);
    if (node.buffer_bytes.count < 0)
      report(node.label, text("node ", id, " has negative buffer bytes"), "correct the profile");
    if (!std::isfinite(node.exchange_seconds) || node.exchange_seconds < 0)
      report(node.label, text("node ", id, " has a negative or infinite time of exchanges"),
             "correct the cluster's latency");
    if (node.fewest_samples < 1 || (node.fewest_samples > 1 && node.scope == SampleScope::kEach))
      report(node.label, text("node ", id, " needs ", node.fewest_samples, " samples together, and takes each alone"),
             "only nodes that work on several samples together need several");
    for (WeightGroupId group : node.weights)
      if (group.index() >= graph_.weight_groups.size())
        report(node.label, text("node ", id, " names a weight group that does not exist"), "correct the profile");
  }

  void check_alternatives(const PlanNode& node) {
    int before = 1;
    for (const NodeAlternative& way : node.alternatives) {
      if (way.degree < before)
        report(node.label, "its degrees do not ascend from 1", "sort the alternatives by degree");
      before = way.degree;
      bool is_sound_price = true;
      for (const SampleFunction* f : {&way.seconds.forward, &way.seconds.input_gradient, &way.seconds.weight_gradient})
        is_sound_price = is_sound_price && is_sound(*f);
      for (const double bytes : {way.weight_bytes, way.kept_bytes, way.fixed_bytes})
        is_sound_price = is_sound_price && std::isfinite(bytes) && bytes >= 0;
      for (const auto* side : {&way.from, &way.to})
        for (const NodeAlternative::Boundary& boundary : *side)
          is_sound_price = is_sound_price && boundary.neighbour.index() < graph_.nodes.size() &&
                           std::isfinite(boundary.bytes) && boundary.bytes >= 0;
      if (!is_sound_price)
        report(node.label, text("an alternative of degree ", way.degree, " has a negative or infinite cost"),
               "costs are finite and at least 0");
    }
  }

  void check_value(PlanValueId id) {
    const PlanValue& value = graph_.values[id];
    const auto fail = [&](std::string_view what) {
      report({}, text("value ", id, " ", what), "nodes are numbered in topological order, readers ascend");
    };
    if (value.producer.index() >= graph_.nodes.size()) return fail("has no producer");
    if (!is_sound(value.bytes) || !is_sound(value.gradient_bytes)) fail("has a negative or infinite size");
    for (const auto* list :
         {&value.readers, &value.gradient_readers, &value.saved_by_input_gradient, &value.saved_by_weight_gradient}) {
      const bool may_repeat = list == &value.gradient_readers;
      for (size_t i = 0; i < list->size(); ++i) {
        if ((*list)[i].index() >= graph_.nodes.size()) return fail("names a node that does not exist");
        if (i > 0 && ((*list)[i] < (*list)[i - 1] || (!may_repeat && (*list)[i] == (*list)[i - 1])))
          fail("has a list that does not ascend");
      }
    }
    for (PlanNodeId reader : value.readers)
      if (reader <= value.producer) fail(text("is read by node ", reader, " before it is made"));
    for (PlanNodeId reader : value.gradient_readers)
      if (!std::binary_search(value.readers.begin(), value.readers.end(), reader))
        fail(text("gets a gradient from node ", reader, " that does not read it"));
  }

  const PlanGraph& graph_;
  Diagnostics problems_;
};

}  // namespace

Bytes updated_bytes(const WeightGroup& weights, size_t copies, Samples batch) {
  if (weights.row_bytes.count == 0 || copies > 1) return weights.bytes;
  return std::min(weights.bytes, Bytes(2 * weights.row_bytes.count * batch.count));
}

double exchange_rounds(size_t replicas) { return std::bit_width(std::max<size_t>(replicas, 1) - 1); }

std::string_view sample_scope_name(SampleScope scope) { return kScopes.at(static_cast<size_t>(scope)); }

std::optional<SampleScope> sample_scope_of_name(std::string_view name) {
  for (size_t i = 0; i < kScopes.size(); ++i)
    if (kScopes[i] == name) return static_cast<SampleScope>(i);
  return std::nullopt;
}

std::string_view execution_name(Execution execution) { return execution == Execution::kGraph ? "graph" : "chain"; }

std::optional<Execution> execution_of_name(std::string_view name) {
  for (const Execution execution : {Execution::kGraph, Execution::kChain})
    if (execution_name(execution) == name) return execution;
  return std::nullopt;
}

SampleScope PlanGraph::scope_of(std::span<const PlanNodeId> of) const {
  SampleScope widest = SampleScope::kEach;
  for (const PlanNodeId node : of) widest = std::max(widest, nodes[node].scope);
  return widest;
}

bool PlanGraph::has_batch_scope() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const PlanNode& n) { return n.scope == SampleScope::kBatch; });
}

int PlanGraph::kind_count() const {
  return kind_of_device.empty() ? 0 : *std::max_element(kind_of_device.begin(), kind_of_device.end()) + 1;
}

PassSeconds PlanGraph::seconds_on(const PlanNode& node, size_t device) const {
  const size_t kind =
      device < kind_of_device.size() ? static_cast<size_t>(kind_of_device[device]) : node.by_kind.size();
  if (kind < node.by_kind.size()) return node.by_kind[kind];
  return node;
}

std::vector<PlanNodeId> PlanGraph::predecessors(PlanNodeId node) const {
  std::vector<PlanNodeId> found;
  for (const PlanValue& value : values)
    if (std::binary_search(value.readers.begin(), value.readers.end(), node)) found.push_back(value.producer);
  sort_unique(found);
  return found;
}

std::vector<PlanNodeId> PlanGraph::successors(PlanNodeId node) const {
  std::vector<PlanNodeId> found;
  for (const PlanValue& value : values)
    if (value.producer == node) found.insert(found.end(), value.readers.begin(), value.readers.end());
  sort_unique(found);
  return found;
}

PlanAdjacency adjacency_of(const PlanGraph& graph) {
  PlanAdjacency result;
  result.predecessors.resize(graph.nodes.size());
  result.successors.resize(graph.nodes.size());
  for (const PlanValue& value : graph.values)
    for (PlanNodeId reader : value.readers) {
      result.predecessors[reader].push_back(value.producer);
      result.successors[value.producer].push_back(reader);
    }
  for (PlanNodeId node : graph.node_ids()) {
    sort_unique(result.predecessors[node]);
    sort_unique(result.successors[node]);
  }
  return result;
}

Status verify_plan_graph(const PlanGraph& graph) { return PlanGraphVerifier(graph).run(); }

}  // namespace graphpipe::ir
