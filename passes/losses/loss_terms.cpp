#include "passes/losses/loss_terms.h"

#include <algorithm>
#include <set>

#include "ops/op_def.h"
#include "passes/losses/counted_mean.h"

namespace graphpipe::passes {
namespace {

using ir::BatchKind;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using ops::SampleSum;

/// How the node's output relates to the samples where its mixed inputs do so.
SampleSum sum_where_inputs_are(SampleSum kind, const Graph& graph, const Node& node, const ops::OpDef& entry) {
  std::vector<SampleSum> kinds;
  for (const ValueId input : node.inputs)
    kinds.push_back(input.valid() && graph.value(input).batch == BatchKind::kMixed ? kind : SampleSum::kNone);
  return entry.sample_sum(ops::NodeView(graph, node), kinds);
}

/// The inputs whose sums over the samples the node adds up; none where it is anything but a sum, difference, multiple
/// or view of means.
std::vector<size_t> added_inputs(const Graph& graph, const Node& node) {
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->sample_sum == nullptr || node.outputs.size() != 1) return {};
  if (sum_where_inputs_are(SampleSum::kMean, graph, node, *entry) != SampleSum::kMean) return {};
  // A mean may have a constant added, which would be added to a sum once per piece.
  const bool adds_constants = sum_where_inputs_are(SampleSum::kSum, graph, node, *entry) != SampleSum::kSum;
  std::vector<size_t> added;
  bool any_mixed = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    const BatchKind kind = graph.value(node.inputs[i]).batch;
    if (kind == BatchKind::kAxis) return {};
    any_mixed |= kind == BatchKind::kMixed;
    if (kind == BatchKind::kMixed || adds_constants) added.push_back(i);
  }
  return any_mixed ? added : std::vector<size_t>();
}

class TermFinder {
 public:
  explicit TermFinder(const Graph& graph) : graph_(graph) {}

  LossTerms find(ValueId value) {
    reach(value);
    while (!pending_.empty()) {
      const ValueId next = pending_.back();
      pending_.pop_back();
      visit(next);
    }
    std::ranges::sort(found_.steps, {}, &LossTerms::Step::node);
    std::ranges::sort(found_.terms, {}, &LossTerms::Term::value);
    return std::move(found_);
  }

 private:
  void reach(ValueId value) {
    if (reached_.insert(value).second) pending_.push_back(value);
  }

  void visit(ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    if (graph_.value(value).batch != BatchKind::kMixed || !producer.valid() ||
        graph_.node(producer).outputs.front() != value)
      return found_.terms.push_back({value, {}});
    const Node& node = graph_.node(producer);
    if (const std::optional<ir::Loss> stated = stated_by(graph_, node))
      return found_.terms.push_back({value, producer, place_of(*stated)});
    const std::vector<size_t> added = added_inputs(graph_, node);
    if (added.empty()) return found_.terms.push_back({value, {}});
    found_.steps.push_back({producer, added});
    for (const size_t i : added) reach(node.inputs[i]);
  }

  size_t place_of(const ir::Loss& divisor) {
    const auto known = std::ranges::find(found_.divisors, divisor);
    const auto place = static_cast<size_t>(known - found_.divisors.begin());
    if (known == found_.divisors.end()) found_.divisors.push_back(divisor);
    return place;
  }

  const Graph& graph_;
  LossTerms found_;
  std::set<ValueId> reached_;
  std::vector<ValueId> pending_;
};

}  // namespace

std::optional<LossTerms> find_loss_terms(const Graph& graph, ValueId value) {
  LossTerms found = TermFinder(graph).find(value);
  const auto is_float = [&](ValueId of) { return graph.value(of).type.dtype == ir::DType::kFloat32; };
  const bool all_are_float =
      std::ranges::all_of(found.terms, [&](const LossTerms::Term& term) { return is_float(term.value); }) &&
      std::ranges::all_of(found.steps,
                          [&](const LossTerms::Step& step) { return is_float(graph.node(step.node).outputs.front()); });
  if (found.divisors.empty() || !all_are_float) return std::nullopt;
  return found;
}

}  // namespace graphpipe::passes
