#include "codegen/slot_layout.h"

#include <algorithm>
#include <array>
#include <map>

#include "codegen/stage_steps.h"
#include "support/check.h"
#include "support/sort_unique.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ValueId;

constexpr size_t kPhases = 3;

/// What one phase computes, and what it reads but does not compute, without parameters.
struct PhaseUse {
  IdSet<ValueId> made;
  std::vector<ValueId> read;  // ascending
};

PhaseUse use_of(const Graph& graph, const std::vector<Step>& steps, const IdMap<ValueId, ir::ParamId>& param_of) {
  PhaseUse use;
  use.made = IdSet<ValueId>(graph.value_count());
  for (const Step& step : steps) {
    for (ValueId input : inputs_of_step(graph, step))
      if (!use.made.contains(input) && !param_of[input].valid()) use.read.push_back(input);
    for (ValueId output : outputs_of_step(graph, step)) use.made.insert(output);
  }
  sort_unique(use.read);
  return use;
}

void insert_sorted(std::vector<ValueId>& sorted, ValueId value) {
  const auto place = std::ranges::lower_bound(sorted, value);
  if (place == sorted.end() || *place != value) sorted.insert(place, value);
}

bool contains(const std::vector<ValueId>& sorted, ValueId value) { return std::ranges::binary_search(sorted, value); }

Place place(int slot) { return {Place::Array::kSlot, static_cast<size_t>(slot)}; }

class LayoutBuilder {
 public:
  LayoutBuilder(const Graph& graph, const StageCut& cut) : graph_(graph), cut_(cut) {
    const IdMap<ValueId, ir::ParamId> param_of = ir::params_of_values(graph);
    uses_ = {use_of(graph, cut.steps.forward, param_of), use_of(graph, cut.steps.input_gradient, param_of),
             use_of(graph, cut.steps.weight_gradient, param_of)};
    for (const auto* steps : {&cut.steps.forward, &cut.steps.input_gradient, &cut.steps.weight_gradient})
      for (const Step& step : *steps) find_aliases(step);
    for (const ValueId value : passed_values(cut)) insert_sorted(uses_[0].read, value);
    for (const ValueId gradient : passed_gradients(cut)) insert_sorted(uses_[1].read, gradient);
  }

  SlotLayout run() {
    layout_.boundaries.resize(cut_.boundaries.size());
    add_inputs();
    add_results();
    add_gradients();
    add_saved();
    for (size_t phase = 0; phase < kPhases; ++phase) add_loads(phase);
    if (cut_.recompute) add_clears();
    add_evaluation();
    copy_outputs();
    return std::move(layout_);
  }

 private:
  /// A sum of which only one operand exists in this stage is that operand: two names of one tensor.
  void find_aliases(const Step& step) {
    if (!step.only_operand.valid()) return;
    aliases_.insert(step.only_operand);
    for (const ValueId value : graph_.node(step.node).outputs) aliases_.insert(value);
  }

  int add_slot(SlotUse use, ValueId value) {
    layout_.slots.push_back({use, value});
    return static_cast<int>(layout_.slots.size()) - 1;
  }

  /// Adds a slot that functions read the value from.
  int add_source(SlotUse use, ValueId value) {
    const int slot = add_slot(use, value);
    source_[value] = slot;
    return slot;
  }

  FunctionPlaces& places(size_t phase) {
    return phase == 0 ? layout_.forward : phase == 1 ? layout_.input_gradient : layout_.weight_gradient;
  }

  /// The phase that computes the value in this stage; kPhases if none does.
  size_t made_in(ValueId value) const {
    for (size_t phase = 0; phase < kPhases; ++phase)
      if (uses_[phase].made.contains(value)) return phase;
    return kPhases;
  }

  void add_inputs() {
    for (size_t input : cut_.data) layout_.data.push_back(add_source(SlotUse::kData, graph_.inputs()[input].value));
    if (cut_.loss_scale.valid()) layout_.loss_scale = add_source(SlotUse::kLossScale, cut_.loss_scale);
    for (size_t i = 0; i < cut_.boundaries.size(); ++i)
      if (cut_.boundaries[i].is_input)
        layout_.boundaries[i].value = add_source(SlotUse::kReceivedValue, cut_.boundaries[i].value);
    for (size_t slot = 0; slot < layout_.slots.size(); ++slot)
      layout_.recompute_inputs.push_back(static_cast<int>(slot));
  }

  void store(ValueId value, int slot) {
    const size_t phase = made_in(value);
    GP_CHECK(phase < kPhases);
    store_in(phase, value, slot);
  }

  void store_in(size_t phase, ValueId value, int slot) { places(phase).stores.push_back({value, place(slot)}); }

  void add_results() {
    for (size_t i = 0; i < cut_.boundaries.size(); ++i) {
      if (cut_.boundaries[i].is_input) continue;
      layout_.boundaries[i].value = add_slot(SlotUse::kSentValue, cut_.boundaries[i].value);
      const ValueId value = cut_.boundaries[i].value;
      if (source_.contains(value)) store_in(0, value, layout_.boundaries[i].value);  // received, and passed on
      else store(value, layout_.boundaries[i].value);
    }
    for (size_t output : cut_.outputs) {
      const ValueId value = graph_.outputs()[output].value;
      layout_.outputs.push_back(add_slot(SlotUse::kOutput, value));
      layout_.forward.stores.push_back({value, place(layout_.outputs.back()), "a.keeps_outputs"});
    }
    if (!cut_.loss.valid()) return;
    layout_.loss = add_slot(SlotUse::kLoss, cut_.loss);
    store(cut_.loss, layout_.loss);
  }

  void add_gradients() {
    for (size_t i = 0; i < cut_.boundaries.size(); ++i) {
      const StageBoundary& boundary = cut_.boundaries[i];
      if (boundary.gradients.empty()) continue;
      layout_.boundaries[i].first_gradient = static_cast<int>(layout_.slots.size());
      for (ValueId gradient : boundary.gradients) {
        if (!boundary.is_input) add_source(SlotUse::kReceivedGradient, gradient);
        else if (made_in(gradient) < kPhases) store(gradient, add_slot(SlotUse::kSentGradient, gradient));
        else store_in(1, gradient, add_slot(SlotUse::kSentGradient, gradient));  // from a later stage, and passed on
      }
    }
  }

  /// Adds slots for values that one phase computes and a later one reads.
  void add_saved() {
    for (size_t phase = 1; phase < kPhases; ++phase)
      for (ValueId value : uses_[phase].read) {
        if (source_.contains(value)) continue;
        store(value, add_source(SlotUse::kSaved, value));
      }
  }

  bool is_recompute_input(int slot) const {
    return cut_.recompute && static_cast<size_t>(slot) < layout_.recompute_inputs.size();
  }

  bool is_read_after(ValueId value, size_t phase) const {
    for (size_t later = phase + 1; later < kPhases; ++later)
      if (contains(uses_[later].read, value)) return true;
    return false;
  }

  void add_loads(size_t phase) {
    for (ValueId value : uses_[phase].read) {
      const auto source = source_.find(value);
      GP_CHECK(source != source_.end());
      const bool take = !is_read_after(value, phase) && !(phase == 0 && is_recompute_input(source->second));
      places(phase).loads.push_back({value, place(source->second), take, take && is_saved_alone(value)});
    }
  }

  SlotUse use_of_place(const Place& slot) const { return layout_.slots[slot.index].use; }

  /// Whether the stage has computed it, and leaves it to its own functions alone: what is sent may still be on its way.
  /// Of an output that is kept there is a copy.
  bool is_saved_alone(ValueId value) const {
    const auto passes_on = [&](const FunctionPlaces& of) {
      return std::ranges::any_of(of.stores, [&](const Store& store) {
        return store.value == value && use_of_place(store.place) != SlotUse::kSaved && !is_kept_output(store);
      });
    };
    return use_of_place(place(source_.at(value))) == SlotUse::kSaved && !aliases_.contains(value) &&
           !passes_on(layout_.forward) && !passes_on(layout_.input_gradient) && !passes_on(layout_.weight_gradient);
  }
  bool is_kept_output(const Store& store) const { return use_of_place(store.place) == SlotUse::kOutput; }

  /// Outputs that a backward function may overwrite.
  void copy_outputs() {
    for (Store& store : layout_.forward.stores)
      if (is_kept_output(store))
        for (const FunctionPlaces* of : {&layout_.input_gradient, &layout_.weight_gradient})
          store.copies = store.copies || std::ranges::any_of(of->loads, [&](const Load& load) {
                           return load.value == store.value && load.is_own;
                         });
  }

  /// Inputs that are kept only for the second forward are released by the first backward function, which follows it.
  void add_clears() {
    const size_t phase = cut_.steps.input_gradient.empty() ? 2 : 1;
    for (int slot : layout_.recompute_inputs) {
      const ValueId value = layout_.slots[static_cast<size_t>(slot)].value;
      if (!is_read_after(value, 0)) places(phase).clears.push_back(place(slot));
    }
  }

  void add_evaluation() {
    layout_.evaluation = layout_.forward;
    std::erase_if(layout_.evaluation.stores,
                  [&](const Store& store) { return layout_.slots[store.place.index].use == SlotUse::kSaved; });
  }

  const Graph& graph_;
  const StageCut& cut_;
  std::array<PhaseUse, kPhases> uses_;
  std::map<ValueId, int> source_;
  IdSet<ValueId> aliases_;
  SlotLayout layout_;
};

}  // namespace

std::string_view slot_use_name(SlotUse use) {
  constexpr std::array<std::string_view, 9> kNames = {"data", "loss scale", "received value",    "sent value",
                                                      "loss", "output",     "received gradient", "sent gradient",
                                                      "saved"};
  return kNames[static_cast<size_t>(use)];
}

SlotLayout lay_out_slots(const Graph& graph, const StageCut& cut) { return LayoutBuilder(graph, cut).run(); }

}  // namespace graphpipe::codegen
