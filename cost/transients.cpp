#include "cost/transients.h"

#include <algorithm>
#include <map>

#include "cost/op_prices.h"
#include "ops/op_def.h"

namespace graphpipe::cost {

namespace {

using ir::NodeId;
using ir::Phase;
using ir::ValueId;

class Sweep {
 public:
  Sweep(const ir::Graph& graph, Samples batch)
      : graph_(graph), batch_(batch), param_of_(ir::params_of_values(graph)), lives_(graph.value_count()) {}

  IdMap<NodeId, ir::SampleFunction> run() {
    for (const ir::Input& input : graph_.inputs()) lives_[input.value].is_data = true;
    for (NodeId id : graph_.node_ids()) note(id);
    std::map<NodeId, std::vector<ValueId>> begins;
    for (ValueId value : ids<ValueId>(lives_.size()))
      if (const Life& life = lives_[value]; life.first.valid() && !life.outlives) begins[life.first].push_back(value);
    IdMap<NodeId, ir::SampleFunction> bytes(graph_.node_count());
    std::vector<ValueId> alive[3];  // by function
    for (NodeId id : graph_.node_ids()) {
      std::vector<ValueId>& here = alive[static_cast<size_t>(graph_.node(id).phase)];
      if (const auto found = begins.find(id); found != begins.end())
        here.insert(here.end(), found->second.begin(), found->second.end());
      for (ValueId value : here) bytes[id] += byte_function(held_type(value), batch_);
      bytes[id] += scratch_of(id);
      for (ValueId input : graph_.node(id).inputs)
        if (is_repeated(input) && ops::copies_repeated(ops::NodeView(graph_, graph_.node(id))))
          bytes[id] += byte_function(graph_.value(input).type, batch_);
      std::erase_if(here, [&](ValueId value) { return lives_[value].last == id; });
    }
    return bytes;
  }

 private:
  bool is_repeated(ValueId value) const {
    const NodeId producer = value.valid() ? graph_.value(value).producer : NodeId();
    return producer.valid() && ops::find_op(graph_.node(producer).op)->repeated_axes != nullptr;
  }
  /// The type of what a value has in memory: less than its own where elements are repeated.
  const ir::TensorType& held_type(ValueId value) const {
    return graph_.value(is_repeated(value) ? graph_.node(graph_.value(value).producer).inputs.front() : value).type;
  }

  ir::SampleFunction scratch_of(NodeId id) const {
    const ops::NodeView view(graph_, graph_.node(id));
    const auto* entry = ops::find_op(graph_.node(id).op);
    std::vector<ir::SampleFunction::Point> points;
    // The function must be monotone: if a kernel needs less for more samples, the largest need so far counts.
    double largest = 0;
    for (const int64_t samples : price_points(batch_)) {
      largest = std::max(largest, ops::work_of(*entry, view, Samples(samples)).scratch);
      points.push_back({static_cast<double>(samples), largest});
    }
    return line_or_table(std::move(points));
  }

  struct Life {
    NodeId first, last;  // in the function that makes it
    Phase phase = Phase::kForward;
    bool is_data = false;
    bool outlives = false;
  };

  void note(NodeId id) {
    const ir::Node& node = graph_.node(id);
    for (ValueId input : node.inputs) {
      if (!input.valid()) continue;
      const ValueId memory = memory_of_value(graph_, input);
      Life& life = lives_[memory];
      if (param_of_[memory].valid()) continue;
      if (life.is_data && !life.first.valid()) life.first = id;
      if (node.phase == life.phase) life.last = id;
      else life.outlives = true;
    }
    for (ValueId output : node.outputs)
      if (memory_of_value(graph_, output) == output) lives_[output] = {.first = id, .last = id, .phase = node.phase};
  }

  const ir::Graph& graph_;
  Samples batch_;
  const IdMap<ValueId, ir::ParamId> param_of_;
  IdMap<ValueId, Life> lives_;
};

}  // namespace

ValueId memory_of_value(const ir::Graph& graph, ValueId value) {
  while (true) {
    const NodeId producer = graph.value(value).producer;
    if (!producer.valid()) return value;
    const ir::Node& node = graph.node(producer);
    if (node.inputs.empty() || !node.inputs.front().valid() || !ops::is_view(ops::NodeView(graph, node))) return value;
    value = node.inputs.front();
  }
}

IdMap<NodeId, ir::SampleFunction> transient_bytes(const ir::Graph& graph, Samples batch) {
  return Sweep(graph, batch).run();
}

}  // namespace graphpipe::cost
