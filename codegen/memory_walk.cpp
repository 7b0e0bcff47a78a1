#include "codegen/memory_walk.h"

#include <algorithm>
#include <optional>
#include <set>

#include "codegen/lifetimes.h"
#include "codegen/node_emitter.h"
#include "codegen/stage_steps.h"
#include "codegen/tensor_heap.h"
#include "ir/schedule.h"
#include "ops/op_def.h"
#include "wire/table_gradients.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ValueId;

/// Follows the tensors of one item through the functions of its stage, one after the other.
class ItemWalk {
 public:
  ItemWalk(const Graph& graph, const IdSet<ValueId>& shared, const StageCut& cut, const SlotLayout& layout,
           Samples samples)
      : graph_(graph),
        shared_(shared),
        cut_(cut),
        layout_(layout),
        samples_(samples),
        param_of_(ir::params_of_values(graph)),
        values_(graph.value_count()),
        state_{.heap = {},
               .slots = std::vector<std::optional<Tensor>>(layout.slots.size()),
               .gradients = std::vector<std::optional<Tensor>>(cut.params.size())} {
    for (size_t i = 0; i < cut.params.size(); ++i) weight_index_.emplace(cut.params[i], i);
    for (const ir::GradientShare& share : cut.steps.shares)
      accumulations_.push_back({share.value, {Place::Array::kGradient, weight_index_.at(share.param)}});
  }

  ir::ItemMemory run() {
    ir::ItemMemory memory;
    memory.values = received(SlotUse::kReceivedValue);
    memory.forward = measure([&] {
      arrive(SlotUse::kData);
      arrive(SlotUse::kLossScale);
      call(cut_.steps.forward, layout_.forward);
      if (cut_.recompute) keep_recompute_inputs();
    });
    if (cut_.recompute) memory.again = measure([&] { call(cut_.steps.forward, layout_.forward); });
    memory.gradients = received(SlotUse::kReceivedGradient);
    const auto input_gradient = [&] { call(cut_.steps.input_gradient, layout_.input_gradient); };
    const auto weight_gradient = [&] { call(cut_.steps.weight_gradient, layout_.weight_gradient); };
    const auto backward = [&] { input_gradient(), weight_gradient(); };
    // The backward is measured as one function and as two, each time for the first item of an update, which allocates
    // the gradients of weights, and for a later item, for which they exist.
    const State stashed = state_;
    memory.first_backward = measure(backward);
    memory.first_backward.sums = sums();
    memory.first_backward.tables = tables_;
    memory.weight_gradients = Bytes(gradient_bytes() - other_rows_);
    memory.other_rows = Bytes(other_rows_);
    tables_.clear();
    go_back(stashed);
    memory.backward = measure(backward);
    state_ = stashed;
    memory.input_gradient = measure(input_gradient);
    const State between = state_;
    memory.first_weight_gradient = measure(weight_gradient);
    memory.first_weight_gradient.sums = sums();
    memory.first_weight_gradient.tables = tables_;
    go_back(between);
    memory.weight_gradient = measure(weight_gradient);
    for (ir::FunctionMemory* first : {&memory.first_backward, &memory.first_weight_gradient})
      first->left -= memory.weight_gradients;
    return memory;
  }

 private:
  /// What exists between two functions.
  struct State {
    TensorHeap heap;
    std::vector<std::optional<Tensor>> slots;
    std::vector<std::optional<Tensor>> gradients;  // by parameter of the stage
  };

  /// Returns to an earlier state as a later item sees it: the gradients of weights that this item has allocated exist,
  /// but their bytes are not counted again.
  void go_back(const State& earlier) {
    std::vector<std::optional<Tensor>> gradients = state_.gradients;
    state_ = earlier;
    for (std::optional<Tensor>& gradient : gradients)
      if (gradient) gradient = state_.heap.make(0, gradient->layout);
    state_.gradients = std::move(gradients);
  }

  template <typename Function>
  ir::FunctionMemory measure(const Function& function) {
    const int64_t before = state_.heap.held();
    state_.heap.begin();
    function();
    state_.heap.note();
    return {Bytes(state_.heap.peak() - before), Bytes(state_.heap.held() - before), state_.heap.take_events(), {}};
  }

  std::vector<ir::MemoryEvent> received(SlotUse use) {
    state_.heap.begin();
    arrive(use);
    return state_.heap.take_events();
  }

  /// The storages of the weights' gradients.
  std::vector<size_t> sums() const {
    std::vector<size_t> storages;
    for (const std::optional<Tensor>& gradient : state_.gradients)
      if (gradient) storages.push_back(gradient->storage);
    return storages;
  }

  int64_t bytes_of(ValueId value) const { return ir::byte_size(graph_.value(value).type, samples_).count; }
  std::vector<int64_t> sizes_of(ValueId value) const { return sizes_at(graph_.value(value).type.shape, samples_); }
  Tensor fresh(ValueId value) { return state_.heap.make(bytes_of(value), contiguous(sizes_of(value))); }

  void put(std::optional<Tensor>& place, std::optional<Tensor> tensor) {
    if (place) state_.heap.drop(*place);
    place = std::move(tensor);
  }

  /// Fills the slots of this use, as the runtime does.
  void arrive(SlotUse use) {
    for (size_t i = 0; i < state_.slots.size(); ++i)
      if (layout_.slots[i].use == use) put(state_.slots[i], fresh(layout_.slots[i].value));
  }

  void keep_recompute_inputs() {
    for (size_t i = 0; i < state_.slots.size(); ++i) {
      const SlotUse use = layout_.slots[i].use;
      const bool keeps =
          use == SlotUse::kSentValue ||
          std::ranges::find(layout_.recompute_inputs, static_cast<int>(i)) != layout_.recompute_inputs.end();
      if (!keeps) put(state_.slots[i], std::nullopt);
    }
  }

  int64_t gradient_bytes() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < state_.gradients.size(); ++i)
      if (state_.gradients[i]) bytes += bytes_of(graph_.param(cut_.params[i]).value);
    return bytes;
  }

  void call(const std::vector<Step>& steps, const FunctionPlaces& places) {
    FunctionOptions options;
    options.loads = places.loads;
    options.stores = places.stores;
    options.clears = places.clears;
    options.accumulations = accumulations_;
    options.shared = &shared_;
    const Lifetimes lifetimes(graph_, steps, options);
    for (const Load& load : places.loads) {
      std::optional<Tensor>& slot = state_.slots[load.place.index];
      values_[load.value] = slot;
      if (load.take) slot.reset();
    }
    for (size_t i = 0; i < steps.size(); ++i) run_step(steps[i], lifetimes, i);
    leave(places, steps);
  }

  void run_step(const Step& step, const Lifetimes& lifetimes, size_t index) {
    std::vector<ValueId> made;
    if (const Accumulation* sum = lifetimes.added_in_place(index)) {
      std::optional<Tensor>& gradient = state_.gradients[sum->place.index];
      const int64_t share = gradient && makes_share(step.node) ? bytes_of(sum->value) : 0;
      if (!gradient) gradient = first_sum(step.node, sum->value);
      state_.heap.note(scratch_of(step.node) + share);
    } else {
      made = lifetimes.overwrites_input(index) ? overwrite_input(step) : make_outputs(step);
      for (const Accumulation* sum : lifetimes.sums_of(made)) add_share(*sum);
    }
    for (const ValueId value : lifetimes.ended(index, made)) put(values_[value], std::nullopt);
  }

  /// The first share of a weight's gradient. For a table it may be only the rows that the item looks up.
  Tensor first_sum(ir::NodeId id, ValueId share) {
    const ir::Node& node = graph_.node(id);
    if (!ops::find_op(node.op)->adds_rows) return fresh(share);
    const std::vector<int64_t> sizes = sizes_of(share);
    const int64_t look_ups = numel(sizes_of(node.inputs[1])), whole = bytes_of(share);
    if (!wire::keeps_rows(look_ups, sizes.front())) return fresh(share);
    const auto number = static_cast<int64_t>(sizeof(int64_t));
    const int64_t rows = look_ups * (whole / sizes.front() + number);
    const Tensor sum = state_.heap.make(rows, contiguous(sizes));
    other_rows_ += tables_.emplace(sum.storage, Bytes(whole)).second ? whole - rows : 0;
    return sum;
  }

  std::vector<ValueId> overwrite_input(const Step& step) {
    const ir::Node& node = graph_.node(step.node);
    const Tensor input = tensor_of(node.inputs.front());
    state_.heap.take(input);
    values_[node.outputs.front()] = input;
    state_.heap.note();
    return {node.outputs.front()};
  }

  std::vector<ValueId> make_outputs(const Step& step) {
    if (step.zero.valid() || step.only_operand.valid()) {
      const ValueId output = step.zero.valid() ? step.zero : graph_.node(step.node).outputs.front();
      const Tensor made = step.zero.valid() ? fresh(output) : tensor_of(step.only_operand);
      if (!step.zero.valid()) state_.heap.take(made);
      values_[output] = made;
      state_.heap.note();
      return {output};
    }
    const ir::Node& node = graph_.node(step.node);
    std::vector<ValueId> made;
    const Emission emission = emit(step.node);
    for (const size_t i : emission.assigned) {
      made.push_back(node.outputs[i]);
      values_[node.outputs[i]] = made_by(node, node.outputs[i], emission.is_alias);
    }
    state_.heap.note(scratch_of(step.node));
    return made;
  }

  struct Emission {
    std::vector<size_t> assigned;
    /// The node only passes input 0 on, because its entry finds nothing to compute.
    bool is_alias = false;
  };

  Emission emit(ir::NodeId id) {
    std::set<std::string> headers;
    Naming naming;
    NodeEmitter emitter(graph_, id, weight_index_, param_of_, naming, headers);
    ops::find_op(graph_.node(id).op)->emit(emitter);
    Emission emission{.assigned = {}, .is_alias = headers.contains("ATen/ops/alias.h")};
    for (size_t i = 0; i < graph_.node(id).outputs.size(); ++i)
      if (emitter.assigned(i)) emission.assigned.push_back(i);
    return emission;
  }

  Tensor made_by(const ir::Node& node, ValueId output, bool is_alias) {
    const ops::OpDef& entry = *ops::find_op(node.op);
    const std::vector<int64_t> sizes = sizes_of(output);
    if (entry.repeated_axes != nullptr) return repeated(entry, node, sizes);
    if (is_alias || ops::is_view(ops::NodeView(graph_, node))) {
      const Tensor from = tensor_of(node.inputs.front());
      if (const std::optional<TensorLayout> view = view_by(entry, node, from.layout, sizes)) {
        const Tensor tensor{from.storage, *view};
        state_.heap.take(tensor);
        return tensor;
      }
    }
    Tensor tensor = fresh(output);
    if (sizes.size() > 3 && sizes.size() <= entry.heads_lie_inside_up_to &&
        sizes.size() == sizes_of(node.inputs.front()).size())
      tensor.layout = with_heads_inside(sizes);
    if (entry.dependence == ops::Dependence::kElement)
      for (const ValueId input : node.inputs)
        if (const TensorLayout* like = layout_of(input);
            like != nullptr && like->sizes == sizes && !like->is_repeated()) {
          tensor.layout = ordered_like(*like);
          break;
        }
    return tensor;
  }

  /// Input 0, or what is made of it, again and again.
  Tensor repeated(const ops::OpDef& entry, const ir::Node& node, const std::vector<int64_t>& sizes) {
    const ops::NodeView view(graph_, node);
    Tensor tensor = ops::is_view(view) ? tensor_of(node.inputs.front()) : fresh(node.inputs.front());
    if (ops::is_view(view)) state_.heap.take(tensor);
    if (tensor.layout.sizes.size() < sizes.size())
      tensor.layout = with_axes(std::move(tensor.layout), entry.repeated_axes(view));
    tensor.layout = part_or_expanded(tensor.layout, sizes);
    return tensor;
  }

  std::optional<TensorLayout> view_by(const ops::OpDef& entry, const ir::Node& node, const TensorLayout& from,
                                      const std::vector<int64_t>& sizes) const {
    if (entry.axes_order != nullptr) return permuted(from, entry.axes_order(ops::NodeView(graph_, node)));
    return numel(sizes) == numel(from.sizes) ? reshaped(from, sizes) : part_or_expanded(from, sizes);
  }

  /// The tensor of a value or of a weight; a weight takes no bytes here.
  Tensor tensor_of(ValueId value) {
    if (values_[value]) return *values_[value];
    GP_CHECK(param_of_[value].valid());
    return state_.heap.make(0, contiguous(sizes_of(value)));
  }
  const TensorLayout* layout_of(ValueId value) const {
    return value.valid() && values_[value] ? &values_[value]->layout : nullptr;
  }

  bool makes_share(ir::NodeId id) const {
    const ops::OpDef& entry = *ops::find_op(graph_.node(id).op);
    return entry.makes_share != nullptr && entry.makes_share(ops::NodeView(graph_, graph_.node(id)), samples_);
  }

  int64_t scratch_of(ir::NodeId id) const {
    const ir::Node& node = graph_.node(id);
    const ops::OpDef& entry = *ops::find_op(node.op);
    // What no machine has, as a stranger's model may ask for, stays a number that adds up.
    constexpr double kMaxScratch = 1e18;
    const double asked = ops::work_of(entry, ops::NodeView(graph_, node), samples_).scratch;
    const auto own = static_cast<int64_t>(std::min(asked, kMaxScratch));
    // If the outer axes of a stack are repeated, both account for the copy.
    return entry.stacks_matrices ? std::max(own, copied_stacks(node)) : own + copied_operands(entry, node);
  }

  /// Bytes of the operands that are copied: repeated ones, and others to be rows of a matrix or in order.
  int64_t copied_operands(const ops::OpDef& entry, const ir::Node& node) const {
    int64_t bytes = ops::copies_repeated(ops::NodeView(graph_, node)) ? repeated_operands(node) : 0;
    for (const size_t i : entry.read_as_rows) {
      const TensorLayout* layout = layout_of(node.inputs[i]);
      if (layout == nullptr || layout->sizes.size() < 3 || numel(layout->sizes) == 0 || layout->is_repeated()) continue;
      const int64_t columns = layout->sizes.back();
      if (!reshaped(*layout, {numel(layout->sizes) / columns, columns})) bytes += bytes_of(node.inputs[i]);
    }
    for (const size_t i : entry.read_in_order)
      if (const TensorLayout* layout = layout_of(node.inputs[i]);
          layout != nullptr && !layout->is_contiguous() && !layout->is_repeated())
        bytes += bytes_of(node.inputs[i]);
    return bytes;
  }

  int64_t repeated_operands(const ir::Node& node) const {
    int64_t bytes = 0;
    for (const ValueId input : node.inputs)
      if (const TensorLayout* layout = layout_of(input); layout != nullptr && layout->is_repeated())
        bytes += bytes_of(input);
    return bytes;
  }

  /// Bytes of a product's operands that LibTorch copies because it cannot view their outer axes as one axis.
  int64_t copied_stacks(const ir::Node& node) const {
    const std::vector<int64_t> product = sizes_of(node.outputs.front());
    int64_t bytes = 0;
    for (const ValueId input : node.inputs) {
      const TensorLayout* layout = layout_of(input);
      if (layout == nullptr || layout->sizes.size() < 3 || layout->sizes.size() > product.size()) continue;
      std::vector<int64_t> whole(product.begin(), product.end() - 2);
      const int64_t stacked = numel(whole);
      whole.insert(whole.end(), layout->sizes.end() - 2, layout->sizes.end());
      if (reshaped(part_or_expanded(*layout, whole), {stacked, *(whole.end() - 2), whole.back()})) continue;
      bytes += numel(whole) * ir::bytes_per_element(graph_.value(input).type.dtype);
    }
    return bytes;
  }

  /// As in runtime/add_share.h: the first share becomes the sum itself if it owns its memory, otherwise a copy of it
  /// does.
  void add_share(const Accumulation& sum) {
    std::optional<Tensor>& gradient = state_.gradients[sum.place.index];
    const Tensor& share = *values_[sum.value];
    if (gradient) return;
    if (state_.heap.owns(share, bytes_of(sum.value))) {
      state_.heap.take(share);
      gradient = share;
    } else {
      gradient = fresh(sum.value);
      state_.heap.note();
    }
  }

  void leave(const FunctionPlaces& places, const std::vector<Step>& steps) {
    for (const Store& store : places.stores) {
      if (!store.condition.empty()) continue;
      const Tensor tensor = tensor_of(store.value);
      const SlotUse use = layout_.slots[store.place.index].use;
      const bool is_sent = use == SlotUse::kSentValue || use == SlotUse::kSentGradient;
      if (is_sent && tensor.layout.is_repeated()) {  // messages have it whole
        put(state_.slots[store.place.index], fresh(store.value));
        continue;
      }
      state_.heap.take(tensor);
      put(state_.slots[store.place.index], tensor);
    }
    state_.heap.note();
    for (const Load& load : places.loads) forget(load.value, load.take);
    for (const Step& step : steps)
      for (const ValueId output : outputs_of_step(graph_, step)) forget(output, true);
    for (const Place& place : places.clears) put(state_.slots[place.index], std::nullopt);
  }

  /// Removes a local name at the end of its function. A name that owns its tensor releases it; a borrowed one does not.
  void forget(ValueId value, bool is_own) {
    if (is_own) put(values_[value], std::nullopt);
    else values_[value].reset();
  }

  const Graph& graph_;
  const IdSet<ValueId>& shared_;
  const StageCut& cut_;
  const SlotLayout& layout_;
  Samples samples_;
  const IdMap<ValueId, ir::ParamId> param_of_;
  std::map<ir::ParamId, size_t> weight_index_;
  std::vector<Accumulation> accumulations_;
  IdMap<ValueId, std::optional<Tensor>> values_;
  State state_;
  std::map<size_t, Bytes> tables_;  // as in ir::FunctionMemory
  int64_t other_rows_ = 0;
};

}  // namespace

ir::ItemMemory walk_item(const Graph& graph, const IdSet<ValueId>& shared, const StageCut& cut,
                         const SlotLayout& layout, Samples samples) {
  GP_CHECK(!cut.by_autograd);
  return ItemWalk(graph, shared, cut, layout, samples).run();
}

StageMemories::StageMemories(const Graph& graph) : graph_(&graph), shared_(shared_values(graph)) {}

Result<StageMemories> StageMemories::of(const Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages) {
  StageMemories memories(graph);
  GP_TRY(memories.apart_.cuts, cut_stages(graph, plan, stages));
  GP_TRY(memories.joined_.cuts, cut_stages(graph, plan, stages, ir::undivided_backwards({}, stages.stages.size())));
  for (Cuts* cuts : {&memories.apart_, &memories.joined_})
    for (const StageCut& cut : cuts->cuts) cuts->layouts.push_back(lay_out_slots(graph, cut));
  return memories;
}

ir::ItemMemory StageMemories::item(ir::StageId stage, Samples samples, bool joins_backward) const {
  const Cuts& cuts = joins_backward ? joined_ : apart_;
  return walk_item(*graph_, shared_, cuts.cuts[stage], cuts.layouts[stage], samples);
}

}  // namespace graphpipe::codegen
