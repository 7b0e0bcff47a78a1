#pragma once
// The interface between generated code and the runtime: the arguments of a stage's functions, and the constant tables
// that describe stages and a device's program. Generated files define these tables; the executor only reads them. There
// are no policies and no name look-ups: tensors are found by index.

#include <cstdint>
#include <span>

#include "wire/action.h"
#include "wire/default_optimizer.h"
#include "wire/element_type.h"
#include "wire/id_bounds.h"
#include "wire/loss.h"
#include "wire/training.h"

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The key of one node's random numbers: partition, micro-batches, replicas and the schedule do not change them.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t node = 0;                        // place of the forward node among those that draw
  int64_t first_sample = 0;                 // of the item, within the step
  const int64_t* step_on_device = nullptr;  // StageArguments::step_on_device
};

/// Hears which gradients are complete while the rest of a backward still runs.
class GradientListener {
 public:
  /// Places in StageEntry::params: the pass adds nothing more to their gradients.
  virtual void note_complete(std::span<const int32_t> params) = 0;

 protected:
  ~GradientListener() = default;
};

class ReplicaExchange;

/// The arguments of one call of a stage function.
struct StageArguments {
  /// The stage's parameters (StageEntry::params order), in the weight version that the action names. Buffers are
  /// included and are updated in place.
  const at::Tensor* weights = nullptr;
  /// Gradient accumulators, same order; undefined until the step's first share. Used by weight gradients.
  at::Tensor* gradients = nullptr;
  /// The item's tensors, StageEntry::slot_size of them: boundary and data inputs, saved values, outputs, gradients.
  at::Tensor* slot = nullptr;
  int64_t samples = 0;
  int64_t first_sample = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
  /// Calls that are recorded once and run in many steps read the step here, in the device's memory; null: it is `step`.
  const int64_t* step_on_device = nullptr;
  /// The forward is repeated for the same item: running statistics must not be updated again.
  bool recompute = false;
  /// The forward leaves the model's outputs in the slot.
  bool keeps_outputs = false;
  /// Where all these tensors are: the index of a GPU of this host, or -1 for the CPU.
  int32_t gpu = -1;
  /// Set for the last item of an update of a stage with replicas: input_gradient, then weight_gradient, tell it of all
  /// parameters but those of their last part. May be null.
  GradientListener* listener = nullptr;
  /// Where a forward or input gradient adds up over all samples of a micro-batch (StageEntry::exchanges_sums) that the
  /// stage's replicas divide: the way to the others. Null: the call has all of them.
  ReplicaExchange* replicas = nullptr;
};
using StageFunction = void (*)(const StageArguments&);

using ElementType = wire::ElementType;

/// factor * samples^power.
struct DimRow {
  int64_t factor = 1;
  int32_t power = 0;
};

struct TensorRow {
  ElementType type = ElementType::kFloat32;
  std::span<const DimRow> dims;
  /// The axis that holds the batch, or -1 (kMixed values are sent whole).
  int32_t batch_axis = -1;
  /// Rows of the batch axis per sample.
  int64_t rows_per_sample = 1;
};

enum class ParamRole : uint8_t { kTrainable, kFrozen, kBuffer, kConstant };
struct ParamRow {
  /// ONNX name: the key in weights.safetensors.
  const char* name = nullptr;
  TensorRow tensor;
  ParamRole role = ParamRole::kTrainable;
  /// Parameters of different stages with the same group are copies of one parameter (tied weights).
  int32_t group = -1;
  /// Whether rows are looked up by ids: an embedding.
  bool is_table = false;
  /// Further names that a tied parameter has in the module.
  std::span<const char* const> aliases = {};
};

/// A model input or label that the stage reads from the data folder.
struct DataRow {
  const char* name = nullptr;
  TensorRow tensor;
  int32_t slot = -1;
  /// For integers: the rows or classes that they may refer to. Synthetic ones are drawn from [0, high), or from [0, 2)
  /// if there is no bound.
  wire::IdBounds ids;
};

/// A model output with a batch axis that the stage computes: all of them in programs that only run forwards, otherwise
/// those that the loss needs.
struct OutputRow {
  const char* name = nullptr;
  TensorRow tensor;
  int32_t slot = -1;
};

/// A value that the forward computes and leaves in the item's slot, and the model's operator that it comes from.
struct KeptRow {
  int32_t slot = -1;
  const char* op = nullptr;    // "Log"
  const char* name = nullptr;  // of the model's node
};

/// The stage's end of a transfer. A value is sent forward once; its gradient comes back as `gradient_count` tensors of
/// the value's type (more than one only if partial sums would change the order of additions).
struct BoundaryRow {
  int32_t edge = -1;
  bool is_input = false;       // this stage receives the value
  int32_t slot = -1;           // slot index of the value
  int32_t gradient_slot = -1;  // slot index of the first gradient tensor, consecutive; -1 if no gradient flows
  int32_t gradient_count = 0;
  TensorRow tensor;
};

/// A stage library's table.
///
/// Who owns the tensors in an item's slot, over the item's life: before a forward the executor puts the data inputs,
/// the received boundary inputs (contiguous, all rows of the item) and the loss scale there; the forward adds its saved
/// values, the boundary outputs and the loss. Before an input-gradient function the executor puts the received
/// gradients of the boundary outputs there; the function adds the gradients of the boundary inputs, all of them
/// defined. Generated code resets what it reads after the last reader: saved values, received gradients, and, if the
/// stage does not recompute or in its backward, data, received inputs and the loss scale. It never resets what it
/// leaves for others: boundary outputs (each boundary row has its own slot), gradients of boundary inputs, the loss,
/// the model's outputs (if StageArguments::keeps_outputs asks for them). The executor clears the whole slot when the
/// item's last action is done. A backward (B) calls input_gradient, then weight_gradient; if no program splits
/// backwards, the former computes both.
struct StageEntry {
  int32_t stage = -1;
  int32_t slot_size = 0;
  StageFunction forward = nullptr;
  /// The forward for evaluation: Dropout is off, BatchNorm uses its running statistics, and nothing is saved for a
  /// backward. Null: the same as in training.
  StageFunction evaluate = nullptr;
  /// Null if the stage has no such pass.
  StageFunction input_gradient = nullptr;
  StageFunction weight_gradient = nullptr;
  std::span<const ParamRow> params;
  std::span<const DataRow> data;
  std::span<const BoundaryRow> boundaries;
  /// Slot of the item's share of the loss (a scalar), or -1.
  int32_t loss_slot = -1;
  /// Slot that the executor fills with the loss scale 1/N before a forward (a float scalar tensor), or -1.
  int32_t loss_scale_slot = -1;
  /// Slots that must survive from forward to backward if the stage recomputes: its boundary and data inputs.
  std::span<const int32_t> recompute_inputs;
  std::span<const OutputRow> outputs;
  /// In the order of computation.
  std::span<const KeptRow> kept;
  /// Whether its passes add up over the samples of a micro-batch, so that replicas run their parts of it together.
  bool exchanges_sums = false;
};

/// Where replica `replica` of stage `stage` runs.
struct PlacementRow {
  int32_t stage = 0;
  int32_t replica = 0;
  int32_t device = 0;
};

/// One transfer of the plan, both ends, all devices.
struct EdgeRow {
  int32_t from = -1;
  int32_t to = -1;
};

/// A weight group with copies in several stages.
struct GroupRow {
  int32_t group = -1;
  std::span<const int32_t> stages;  // ascending
};

using ReplicaMode = wire::ReplicaMode;
struct StageRow {
  int64_t micro_batch = 1;
  int32_t replicas = 1;
  ReplicaMode mode = ReplicaMode::kSplit;
  int32_t slots = 1;
  bool recompute = false;
  /// Each replica updates a part of every parameter, and has the optimizer's state of that part alone.
  bool shards_optimizer = false;
};

/// How N, the divisor of the loss, is determined before the first backward (docs/semantics.md, section 4).
struct LossRow {
  using Normalizer = wire::LossNormalizer;
  Normalizer normalizer = Normalizer::kSamples;
  /// The label, for kCountedPositions; any stage may read it (its slot is not used). Otherwise it has no name.
  DataRow label;
  int64_t ignore_index = -100;
  bool has_ignore_index = false;
  /// Elements per sample, which also divide the loss (MSE and BCE average over all elements).
  int64_t elements_per_sample = 1;
  /// The elements of a label's sample that can count, with the batch axis first; if empty, all of them.
  std::span<const wire::PositionRange> counted;
  /// Terms of the loss that have a divisor of their own, and no terms.
  std::span<const LossRow> terms = {};
};

/// Everything about the plan that every device knows.
struct PlanTable {
  /// SHA-256 of the plan, hex: peers with another digest are rejected.
  const char* plan_digest = nullptr;
  /// Samples of one step.
  int64_t batch = 1;
  /// Number of steps that the programs cover: more than one if an asynchronous schedule drains only after several.
  /// Sample ranges of actions and updates count through all of them.
  int64_t batches = 1;
  int32_t device_count = 1;
  /// The device of a parameter server, which is not part of any plan: a run adds it (runtime/server); -1: there is
  /// none.
  int32_t server = -1;
  /// A name of wire/optimizers.h.
  const char* optimizer = wire::kDefaultOptimizer;
  int32_t threads = 1;
  /// Seed of everything random.
  uint64_t seed = 0;
  /// Whether gradients are computed in float16, so that the loss is scaled (runtime/optimizers/loss_scale.h).
  bool scales_loss = false;
  /// The plan's estimate for its longest action, in milliseconds; 0: unknown.
  int64_t longest_action_ms = 0;
  LossRow loss;
  /// The updates of the loss's stage: the loss of an item is divided by N of the update that contains it. Empty if each
  /// step is one update.
  std::span<const wire::SampleRange> loss_updates;
  /// Number of model outputs that stages compute (StageEntry::outputs).
  int32_t outputs = 0;
  std::span<const StageRow> stages;  // by stage id
  std::span<const EdgeRow> edges;    // by edge id
  std::span<const PlacementRow> placement;
  /// Only groups that two or more stages hold.
  std::span<const GroupRow> groups;
};

/// One device's program: its actions of one training step, or of PlanTable::batches steps, in order. What weight
/// versions and updates mean is written down in the compiler's ir/schedule.h: a STEP applies the gradients of the
/// samples in its range and makes the version that it names, compute actions read the version that they name, version 0
/// is what the step finds. Sends and receives are listed for transfers between stages of one device too. A receive
/// belongs to the item of the next F (forward) or B/I (backward) action of its stage, replica and slot; together the
/// receives of an edge cover that item's samples exactly once.
struct DeviceProgram {
  int32_t device = 0;
  const PlanTable* plan = nullptr;
  std::span<const wire::ActionRow> actions;
  /// The stages that this device holds; generated tables leave them to main functions (LinkedProgram).
  std::span<const StageEntry* const> stages;
  /// Size of the memory block in which the plan has placed the tensors of a step; 0: not placed.
  int64_t arena_bytes = 0;
};

}  // namespace graphpipe::runtime
