#include "codegen/lifetimes.h"

#include <algorithm>

#include "ops/op_def.h"
#include "support/sort_unique.h"

namespace graphpipe::codegen {
namespace {

using ir::ValueId;

constexpr size_t kNever = static_cast<size_t>(-1);

}  // namespace

Lifetimes::Lifetimes(const ir::Graph& graph, std::span<const Step> steps, const FunctionOptions& options)
    : graph_(graph),
      steps_(steps),
      options_(options),
      param_of_(ir::params_of_values(graph)),
      last_use_(graph.value_count(), kNever) {
  for (size_t i = 0; i < steps.size(); ++i)
    for (ir::ValueId input : inputs_of(steps[i])) last_use_[input] = i;
  for (const Store& store : options.stores) {
    ever_stored_.insert(store.value);
    if (store.condition.empty()) stored_.insert(store.value);
  }
  for (const Load& load : options.loads)
    if (!load.take) borrowed_.insert(load.value);
  for (const Accumulation& sum : options.accumulations) sums_[sum.value].push_back(&sum);
  if (options.overwriting == nullptr) find_shared();
}

void Lifetimes::find_shared() {
  if (options_.shared == nullptr) own_shared_in_graph_ = shared_values(graph_);
  shared_in_graph_ = options_.shared == nullptr ? &own_shared_in_graph_ : options_.shared;
  for (const Load& load : options_.loads)
    if (!load.take || !load.is_own) shared_.insert(load.value);
  for (const Step& step : steps_)  // the sum is its operand, or zeros
    if (step.only_operand.valid()) {
      shared_.insert(step.only_operand);
      for (const ValueId value : graph_.node(step.node).outputs) shared_.insert(value);
    }
}

bool Lifetimes::overwrites_input(size_t index) const {
  const Step& step = steps_[index];
  if (step.zero.valid() || step.only_operand.valid()) return false;
  return options_.overwriting == nullptr ? may_overwrite_input(index) : options_.overwriting->contains(step.node);
}

bool Lifetimes::may_overwrite_input(size_t index) const {
  const Step& step = steps_[index];
  const ir::Node& node = graph_.node(step.node);
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->emit_in_place == nullptr) return false;
  const ValueId input = node.inputs.front(), output = node.outputs.front();
  return last_use_[input] == index && std::ranges::count(node.inputs, input) == 1 && !is_shared(input) &&
         !ever_stored_.contains(input) && !borrowed_.contains(input) && !sums_.contains(input) &&
         !sums_.contains(output) &&  // which the sum takes over only if nothing else holds it
         graph_.value(input).type == graph_.value(output).type;
}

std::vector<const Accumulation*> Lifetimes::sums_of(const std::vector<ir::ValueId>& made) const {
  std::vector<const Accumulation*> sums;
  for (const ir::ValueId value : made)
    if (const auto found = sums_.find(value); found != sums_.end())
      sums.insert(sums.end(), found->second.begin(), found->second.end());
  std::ranges::sort(sums);
  return sums;
}

std::vector<ir::ValueId> Lifetimes::inputs_of(const Step& step) const {
  if (step.only_operand.valid()) return {step.only_operand};
  if (step.zero.valid()) return {};
  std::vector<ir::ValueId> inputs;
  for (ir::ValueId input : graph_.node(step.node).inputs)
    if (input.valid() && !param_of_[input].valid()) inputs.push_back(input);
  sort_unique(inputs);
  return inputs;
}

std::vector<ir::ValueId> Lifetimes::ended(size_t index, const std::vector<ir::ValueId>& made) const {
  std::vector<ir::ValueId> ended;
  for (ir::ValueId input : inputs_of(steps_[index]))
    if (last_use_[input] == index) ended.push_back(input);
  for (ir::ValueId output : made)
    if (last_use_[output] == kNever) ended.push_back(output);
  std::erase_if(ended, [&](ir::ValueId value) { return stored_.contains(value) || borrowed_.contains(value); });
  return ended;
}

const Accumulation* Lifetimes::added_in_place(size_t index) const {
  const Step& step = steps_[index];
  if (step.zero.valid() || step.only_operand.valid()) return nullptr;
  const ir::Node& node = graph_.node(step.node);
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->accumulate == nullptr || node.outputs.size() != 1) return nullptr;
  const ir::ValueId share = node.outputs.front();
  const auto sums = sums_.find(share);
  // A share of several parameters must be a tensor, which is added for each of them: the gradient of V + W is both that
  // of V and that of W.
  if (sums == sums_.end() || sums->second.size() != 1) return nullptr;
  const Accumulation* const sum = sums->second.front();
  if (entry->adds_rows && !all_add_rows(sum->place)) return nullptr;
  return last_use_[share] != kNever || stored_.contains(share) ? nullptr : sum;
}

bool Lifetimes::all_add_rows(const Place& sum) const {
  return std::ranges::all_of(options_.accumulations, [&](const Accumulation& other) {
    if (other.place != sum) return true;
    const ir::NodeId maker = graph_.value(other.value).producer;
    return maker.valid() && ops::find_op(graph_.node(maker).op)->adds_rows;
  });
}

IdSet<ValueId> shared_values(const ir::Graph& graph) {
  IdSet<ValueId> shared;
  for (const ValueId value : graph.value_ids())
    if (!graph.value(value).producer.valid()) shared.insert(value);
  for (const ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry != nullptr && entry->owns_outputs != nullptr && entry->owns_outputs(ops::NodeView(graph, node))) continue;
    for (const ValueId value : node.inputs)
      if (value.valid()) shared.insert(value);
    for (const ValueId value : node.outputs) shared.insert(value);
  }
  return shared;
}

IdSet<ir::NodeId> overwriting_nodes(const ir::Graph& graph, std::span<const Step> steps,
                                    const FunctionOptions& options) {
  const Lifetimes lifetimes(graph, steps, options);
  IdSet<ir::NodeId> nodes;
  for (size_t i = 0; i < steps.size(); ++i)
    if (lifetimes.overwrites_input(i)) nodes.insert(steps[i].node);
  return nodes;
}

}  // namespace graphpipe::codegen
