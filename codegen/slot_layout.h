#pragma once
// Where an item's tensors are: the slots of a stage, and what each of its functions finds, leaves and releases there.

#include <string>
#include <vector>

#include "codegen/cut_stages.h"

namespace graphpipe::codegen {

enum class SlotUse : uint8_t {
  kData,  // a model input or label
  kLossScale,
  kReceivedValue,  // boundary input
  kSentValue,      // boundary output, one slot per edge
  kLoss,
  kOutput,            // of the model
  kReceivedGradient,  // of a boundary output
  kSentGradient,      // of a boundary input
  kSaved,             // from one of the stage's functions to a later one
};
std::string_view slot_use_name(SlotUse use);

struct Slot {
  SlotUse use = SlotUse::kSaved;
  ir::ValueId value;
};

/// Positions of a boundary's tensors; -1 if there is none.
struct BoundarySlots {
  int value = -1;
  int first_gradient = -1;
};

/// What one function of the stage finds and leaves.
struct FunctionPlaces {
  std::vector<Load> loads;
  std::vector<Store> stores;
  std::vector<Place> clears;
};

struct SlotLayout {
  std::vector<Slot> slots;
  /// Parallel to StageCut::boundaries and StageCut::data.
  std::vector<BoundarySlots> boundaries;
  std::vector<int> data;
  /// Parallel to StageCut::outputs.
  std::vector<int> outputs;
  int loss = -1;
  int loss_scale = -1;
  FunctionPlaces forward, input_gradient, weight_gradient;
  /// For a forward without a backward: it saves nothing.
  FunctionPlaces evaluation;
  /// Data, received values and the loss scale.
  std::vector<int> recompute_inputs;
};

SlotLayout lay_out_slots(const ir::Graph& graph, const StageCut& cut);

}  // namespace graphpipe::codegen
