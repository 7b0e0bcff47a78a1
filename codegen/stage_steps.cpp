#include "codegen/stage_steps.h"

#include <algorithm>
#include <set>

#include "ops/op_def.h"
#include "support/check.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Phase;
using ir::StageId;
using ir::ValueId;

/// Collects the steps of one stage, phase by phase.
class StepCollector {
 public:
  StepCollector(const Graph& graph, const NodePlaces& places, StageId stage, bool joins_backward)
      : graph_(graph), places_(places), stage_(stage), joins_backward_(joins_backward) {}

  Result<StageSteps> run() {
    for (NodeId id : graph_.node_ids()) {
      const Node& node = graph_.node(id);
      if (is_helper(id)) helpers_.insert(id);
      else if (places_.stage_of[id] == stage_) add({id, {}});
      else if (node.phase == Phase::kWeightGradient && is_repeated(id)) add_repeated_gradient(id);
    }
    keep_shares();
    drop_unread_weight_gradients();
    if (joins_backward_) join_backward();
    for (std::vector<Step>* steps : {&steps_.forward, &steps_.input_gradient, &steps_.weight_gradient}) {
      GP_TRY_VOID(add_repeated_forward(*steps));
    }
    return std::move(steps_);
  }

 private:
  bool is_repeated(NodeId id) const { return !places_.stage_of[id].valid(); }

  void add(Step step) {
    const Node& node = graph_.node(step.node);
    switch (node.phase) {
      case Phase::kForward:
        steps_.forward.push_back(step);
        break;
      case Phase::kInputGradient:
        steps_.input_gradient.push_back(step);
        break;
      case Phase::kWeightGradient:
        steps_.weight_gradient.push_back(step);
        break;
    }
    for (ValueId output : node.outputs)
      if (!step.zero.valid()) made_.insert(output);
  }

  bool is_gradient(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer.valid() && graph_.node(producer).phase != Phase::kForward && !helpers_.contains(producer);
  }
  /// Whether the node, although it belongs to the gradient of a node without samples, computes only from forward
  /// values, such as another view of a weight. It is not a gradient, and runs wherever it is read, as those forward
  /// nodes do.
  bool is_helper(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.phase != Phase::kForward && is_repeated(id) && !node.inputs.empty() &&
           std::ranges::none_of(node.inputs, [&](ValueId input) { return input.valid() && is_gradient(input); });
  }

  /// A gradient node that serves a node without samples runs in every stage that computes one of its gradient operands.
  void add_repeated_gradient(NodeId id) {
    const Node& node = graph_.node(id);
    std::vector<ValueId> here, missing;
    for (ValueId input : node.inputs)
      if (input.valid() && is_gradient(input)) (made_.contains(input) ? here : missing).push_back(input);
    if (here.empty() && !missing.empty()) return;
    if (missing.empty()) return add({id, {}});
    if (node.sums_gradient_of.valid()) return add({id, here.front()});
    // The node is linear in its gradients: each stage takes zeros for those of other stages, and the results add up.
    for (ValueId value : missing)
      if (zeros_.insert(value)) add({.node = id, .only_operand = {}, .zero = value});
    add({id, {}});
  }

  void keep_shares() {
    for (const ir::GradientShare& share : graph_.gradient_shares())
      if (made_.contains(share.value)) steps_.shares.push_back(share);
  }

  void drop_unread_weight_gradients() {
    IdSet<ValueId> read(graph_.value_count());
    for (const ir::GradientShare& share : steps_.shares) read.insert(share.value);
    std::vector<Step> kept;
    for (size_t i = steps_.weight_gradient.size(); i-- > 0;) {
      const Step& step = steps_.weight_gradient[i];
      const std::vector<ValueId> outputs = outputs_of_step(graph_, step);
      if (std::ranges::none_of(outputs, [&](ValueId output) { return read.contains(output); })) continue;
      for (ValueId input : inputs_of_step(graph_, step)) read.insert(input);
      kept.push_back(step);
    }
    std::ranges::reverse(kept);
    steps_.weight_gradient = std::move(kept);
  }

  /// Runs each weight-gradient step as soon as its operands are ready, right after the input gradients that compute
  /// them: tensors that both read are then released sooner.
  /// Example: I2 makes the gradient that I1 and W1 read, W2 reads the one that enters the stage: W2, I2, W1, I1.
  void join_backward() {
    IdSet<ValueId> to_come(graph_.value_count());
    for (const std::vector<Step>* steps : {&steps_.input_gradient, &steps_.weight_gradient})
      for (const Step& step : *steps)
        for (ValueId output : outputs_of_step(graph_, step)) to_come.insert(output);
    std::vector<Step> joined;
    const std::vector<Step> waiting = std::move(steps_.weight_gradient);
    // For each waiting step the number of missing operands, for each of these the steps that wait for it, and the ready
    // steps.
    std::vector<size_t> missing(waiting.size(), 0);
    IdMap<ValueId, std::vector<size_t>> readers(graph_.value_count());
    std::set<size_t> ready;
    for (size_t i = 0; i < waiting.size(); ++i) {
      for (ValueId input : inputs_of_step(graph_, waiting[i]))
        if (to_come.contains(input)) ++missing[i], readers[input].push_back(i);
      if (missing[i] == 0) ready.insert(i);
    }
    const auto take = [&](const Step& step) {
      for (ValueId output : outputs_of_step(graph_, step)) {
        if (!to_come.contains(output)) continue;
        to_come.erase(output);
        for (const size_t reader : readers[output])
          if (--missing[reader] == 0) ready.insert(reader);
      }
      joined.push_back(step);
    };
    // In order: a step that comes before the one that computes its operand waits for the next round.
    const auto take_ready = [&] {
      for (auto next = ready.begin(); next != ready.end(); next = ready.erase(next)) take(waiting[*next]);
    };
    take_ready();
    for (const Step& step : steps_.input_gradient) {
      take(step);
      take_ready();
    }
    GP_CHECK(joined.size() == steps_.input_gradient.size() + waiting.size());
    steps_.input_gradient = std::move(joined);
    steps_.weight_gradient.clear();
  }

  /// Inserts the nodes without samples, and the helpers, that the steps need, each right before its first reader.
  Status add_repeated_forward(std::vector<Step>& steps) {
    constexpr size_t kNever = static_cast<size_t>(-1);
    IdMap<ValueId, size_t> first_read(graph_.value_count(), kNever);
    const auto note_read = [&](ValueId value, size_t position) {
      first_read[value] = std::min<size_t>(first_read[value], position);
    };
    for (size_t i = 0; i < steps.size(); ++i)
      for (ValueId input : inputs_of_step(graph_, steps[i])) note_read(input, i);
    std::vector<std::vector<Step>> before(steps.size());
    for (size_t i = graph_.node_count(); i-- > 0;) {
      const NodeId id(i);
      const Node& node = graph_.node(id);
      const bool is_repeated_forward = node.phase == Phase::kForward && is_repeated(id);
      if (!is_repeated_forward && !helpers_.contains(id)) continue;
      size_t position = kNever;
      for (ValueId output : node.outputs) position = std::min<size_t>(position, first_read[output]);
      if (position == kNever) continue;
      const ops::OpDef& entry = *ops::find_op(node.op);
      if (entry.updates_inputs != nullptr && entry.updates_inputs(ops::NodeView(graph_, node)) != 0)
        return updates_statistics(id);
      for (ValueId input : node.inputs) {
        if (!input.valid()) continue;
        note_read(input, position);
        const NodeId producer = graph_.value(input).producer;
        if (producer.valid() && !is_repeated(producer)) return reads_samples(id);
      }
      before[position].push_back({id, {}});
    }
    std::vector<Step> result;
    for (size_t i = 0; i < steps.size(); ++i) {
      result.insert(result.end(), before[i].rbegin(), before[i].rend());
      result.push_back(steps[i]);
    }
    steps = std::move(result);
    return Ok{};
  }

  /// Every function that needs the node runs it, for every micro-batch.
  Status updates_statistics(NodeId id) const {
    const Node& node = graph_.node(id);
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .origin = node.origins.empty() ? ModelText() : node.origins.front(),
                      .message = text(node.op,
                                      " of a value that does not depend on the samples would update its running "
                                      "statistics wherever that is read"),
                      .hint = "use --batchnorm eval, or compute the value before the export"};
  }

  Status reads_samples(NodeId id) const {
    const Node& node = graph_.node(id);
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = node.origins.empty() ? ModelText() : node.origins.front(),
                      .message = text("node n", id, " is in no stage but reads a value with samples"),
                      .hint = "price the graph again: every node that depends on the samples is a node of the plan"};
  }

  const Graph& graph_;
  const NodePlaces& places_;
  StageId stage_;
  bool joins_backward_;
  StageSteps steps_;
  IdSet<ValueId> made_, zeros_;
  IdSet<NodeId> helpers_;
};

/// The stage that computes a contribution to a gradient, or a sum of contributions.
StageId stage_of_value(const Graph& graph, const NodePlaces& places, ValueId value) {
  return places.stage_of[graph.value(value).producer];
}

StageId place_sum(const Graph& graph, const NodePlaces& places, const Node& sum) {
  const StageId first = stage_of_value(graph, places, sum.inputs[0]);
  const StageId second = stage_of_value(graph, places, sum.inputs[1]);
  return first == second ? second : stage_of_value(graph, places, sum.sums_gradient_of);
}

}  // namespace

std::vector<ValueId> outputs_of_step(const Graph& graph, const Step& step) {
  if (step.zero.valid()) return {step.zero};
  return graph.node(step.node).outputs;
}

std::vector<ValueId> inputs_of_step(const Graph& graph, const Step& step) {
  if (step.zero.valid()) return {};
  if (step.only_operand.valid()) return {step.only_operand};
  std::vector<ValueId> inputs;
  for (ValueId input : graph.node(step.node).inputs)
    if (input.valid()) inputs.push_back(input);
  return inputs;
}

NodePlaces place_nodes(const Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages) {
  NodePlaces places;
  places.stage_of.resize(graph.node_count());
  for (StageId stage : stages.stage_ids())
    for (ir::PlanNodeId node : stages.stages[stage].nodes) {
      GP_CHECK(plan.nodes[node].source.valid());
      places.stage_of[plan.nodes[node].source] = stage;
    }
  for (NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase == Phase::kForward) continue;
    if (node.sums_gradient_of.valid()) {
      if (places.stage_of[node.serves].valid()) places.stage_of[id] = place_sum(graph, places, node);
    } else {
      places.stage_of[id] = places.stage_of[node.serves];
    }
  }
  return places;
}

Result<StageSteps> steps_of_stage(const Graph& graph, const NodePlaces& places, StageId stage, bool joins_backward) {
  return StepCollector(graph, places, stage, joins_backward).run();
}

}  // namespace graphpipe::codegen
