#include "cost/sample_scopes.h"

#include <algorithm>

#include "ops/op_def.h"

namespace graphpipe::cost {

namespace {

using ir::BatchKind;
using ir::NodeId;
using ir::SampleScope;
using ir::ValueId;
using ops::SampleSum;

class ScopeFinder {
 public:
  ScopeFinder(const ir::Graph& graph, const ScopeChoice& choice)
      : graph_(graph),
        choice_(choice),
        sum_(graph.value_count(), SampleSum::kNone),
        adds_up_(graph.value_count(), false) {
    result_.scope.resize(graph.node_count(), SampleScope::kEach);
    result_.sums_over_replicas.resize(graph.node_count(), false);
    result_.fewest.resize(graph.node_count(), 1);
  }

  SampleScopes run() {
    for (NodeId id : graph_.node_ids())
      if (is_forward(id)) find_sum(graph_.node(id));
    find_what_adds_up();
    for (NodeId id : graph_.node_ids())
      if (is_forward(id)) set_scopes(graph_.node(id), id);
    for (NodeId id : graph_.node_ids()) set_fewest(id);
    return std::move(result_);
  }

 private:
  bool is_forward(NodeId id) const { return graph_.node(id).phase == ir::Phase::kForward; }
  bool is_mixed(ValueId id) const { return id.valid() && graph_.value(id).batch == BatchKind::kMixed; }
  bool mixes_by_itself(const ir::Node& node) const {
    const auto mixes = ops::find_op(node.op)->mixes_samples;
    return mixes != nullptr && mixes(ops::NodeView(graph_, node));
  }

  void find_sum(const ir::Node& node) {
    const auto counted = ops::find_op(node.op)->counted_mean;
    const auto rule = ops::find_op(node.op)->sample_sum;
    if (rule == nullptr) return;
    std::vector<SampleSum> inputs;
    for (ValueId input : node.inputs) inputs.push_back(input.valid() ? sum_[input] : SampleSum::kNone);
    const ops::NodeView view(graph_, node);
    const bool counts_all = choice_.all_labels_count && counted != nullptr && counted(view);
    for (ValueId output : node.outputs)
      if (is_mixed(output)) sum_[output] = counts_all ? SampleSum::kMean : rule(view, inputs);
  }

  /// A sum or mean over samples adds up if every reader turns it into one that adds up, and a loss that it reaches is
  /// a sum that does not compare samples. Decided from the outputs back to the inputs.
  void find_what_adds_up() {
    for (ValueId id : graph_.value_ids()) adds_up_[id] = is_mixed(id) && sum_[id] != SampleSum::kNone;
    for (const ir::Output& output : graph_.outputs())
      if (output.role == ir::OutputRole::kLoss &&
          (graph_.loss()->compares_samples || sum_[output.value] != SampleSum::kSum))
        adds_up_[output.value] = false;
    // Readers come after what they read, so the reverse walk visits them first.
    for (size_t i = graph_.node_count(); i-- > 0;) {
      const ir::Node& node = graph_.node(NodeId(i));
      if (node.phase != ir::Phase::kForward) continue;
      const bool keeps = std::all_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId output) { return !is_mixed(output) || adds_up_[output]; });
      const bool makes_mixed =
          std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) { return is_mixed(output); });
      if (keeps && makes_mixed) continue;
      for (ValueId input : node.inputs)
        if (is_mixed(input)) adds_up_[input] = false;
    }
  }

  void set_scopes(const ir::Node& node, NodeId id) {
    if (mixes_by_itself(node)) {
      widen(id, choice_.statistics);
      const auto sums = ops::find_op(node.op)->sums_over_replicas;
      result_.sums_over_replicas[id] = sums != nullptr && sums(ops::NodeView(graph_, node));
    }
    bool adds_up = false;
    for (ValueId output : node.outputs) {
      if (!is_mixed(output)) continue;
      if (adds_up_[output]) adds_up = true;
      else if (!mixes_by_itself(node)) widen(id, choice_.losses);
    }
    if (adds_up) result_.additive.push_back(id);
    for (ValueId input : node.inputs) {
      if (!is_mixed(input) || adds_up_[input]) continue;
      const NodeId producer = graph_.value(input).producer;
      const bool statistics = producer.valid() && mixes_by_itself(graph_.node(producer));
      widen(id, statistics ? choice_.statistics : choice_.losses);
    }
  }

  void widen(NodeId id, SampleScope scope) { result_.scope[id] = std::max(result_.scope[id], scope); }

  void set_fewest(NodeId id) {
    const auto fewest = ops::find_op(graph_.node(id).op)->fewest_samples;
    if (result_.scope[id] != SampleScope::kEach && fewest != nullptr)
      result_.fewest[id] = fewest(ops::NodeView(graph_, graph_.node(id)));
  }

  const ir::Graph& graph_;
  const ScopeChoice& choice_;
  IdMap<ValueId, SampleSum> sum_;
  /// Mixed values that are part of a loss that adds up over samples.
  IdMap<ValueId, bool> adds_up_;
  SampleScopes result_;
};

}  // namespace

SampleScopes sample_scopes(const ir::Graph& graph, const ScopeChoice& choice) {
  return ScopeFinder(graph, choice).run();
}

}  // namespace graphpipe::cost
