#pragma once
// What a replica of a stage keeps between actions: weights, gradients, optimizer state. Shared by the executor and the
// serial interpreter, which share nothing that moves data.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/io/safetensors.h"
#include "runtime/optimizers/loss_scale.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/owned_elements.h"
#include "runtime/optimizers/update_settings.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

/// By how much a step's gradients count in its update, which may take those of several steps (--accumulate): the step's
/// samples, and those of all of the update's steps, in batches of the plan.
struct StepShares {
  double of_step = 1;
  double of_update = 1;
};

struct StageState {
  const StageEntry* entry = nullptr;
  int32_t replica = 0;
  std::vector<size_t> trainable;    // parameter indices, ascending
  std::vector<at::Tensor> weights;  // the newest version, by parameter
  int32_t newest = 0;               // its number in this step
  /// Versions that are still read. Only trainable parameters are copied: tensors that no optimizer changes are the same
  /// in all versions, so BatchNorm's statistics are those of all items, whichever version they read.
  std::map<int32_t, std::vector<at::Tensor>> older;
  /// By first sample of the update, then by parameter; undefined until the first share. Those of the last update are
  /// released when the step ends, so that their memory serves the activations of the next one; if they are kept, when
  /// the next step begins.
  std::map<int64_t, std::vector<at::Tensor>> gradients;
  bool keeps_gradients = false;
  /// They are read after the update, and so as it takes them: in its type, and with all factors.
  bool shows_used_gradients = false;
  Optimizer optimizer;
  /// By parameter: the elements that this replica updates, and has optimizer state of; the others come from the other
  /// replicas (collectives/weight_exchange.h). Empty: all of every parameter.
  std::vector<ElementRange> owned;
  /// Null: every step updates, and nothing is clipped or averaged. The settings must outlive the state.
  const UpdateSettings* updates = nullptr;
  int64_t step = 0;  // within the whole training, from 0
  StepShares shares;
  /// If gradients are those of a scaled loss: the rank's scale, which must outlive the state; and its reciprocal in
  /// this step.
  LossScale* loss_scale = nullptr;
  double gradient_factor = 1;
  /// The factor on the learning rate in this stage (replica_rate).
  double rate = 1;
  /// Updates of this step whose gradients are already prepared for the optimizer (update_weights.h).
  std::set<int64_t> prepared;
  /// By parameter: the gradient sum since the last update, undefined if there is none; and the moving average of the
  /// weights, which replica 0 keeps if the run asks for it.
  std::vector<at::Tensor> gradient_sums, averages;
};

/// Where a run's initial weights come from.
struct WeightFiles {
  /// The generated folder's file: all parameters and constants of the model.
  const Safetensors& folder;
  /// A file that an earlier run saved, used instead of the folder's parameters; null: none.
  const Safetensors* own = nullptr;
};

/// Loads the stage's parameters onto the device: on the CPU, private copies of what training changes and the mapping
/// itself for the rest. Throws RunError (kMalformedFile) if a file does not fit the table. The files and the settings
/// must outlive the state.
StageState load_stage(const StageEntry& entry, int32_t replica, const WeightFiles& files, const UpdateSettings& updates,
                      const Device& device);

/// Limits the state to the elements that its replica updates, if the plan's replicas of the stage divide the
/// optimizer's state. Throws RunError (kUsage) if the run asks for what needs the whole state.
void divide_optimizer_state(const PlanTable& plan, StageState& state);
/// Creates the optimizer's state of what this replica updates, where there is none: its memory lasts for the training,
/// and an update within a step would create it among tensors that last for the step.
void begin_optimizer(StageState& state);
/// Of a tensor of the parameter's shape, what this replica updates.
at::Tensor owned_part(const StageState& state, size_t index, const at::Tensor& tensor);

/// R(s)/R(0), the number of replicas of the stage over that of the first one, if the run scales learning rates by it;
/// otherwise 1 (docs/training.md, Optimizers).
double replica_rate(const PlanTable& plan, const UpdateSettings& settings, int32_t stage);

/// Discards the gradients of the previous step; the newest version becomes version 0.
void begin_step(StageState& state, int64_t step, StepShares shares = {});
/// Releases versions that are no longer read.
void end_step(StageState& state);
/// The parameters of a version. GP_CHECKs that it exists: programs are checked when they are resolved.
const std::vector<at::Tensor>& weights_of(const StageState& state, int32_t version);
void free_version(StageState& state, int32_t version);
/// The accumulators of the update that begins at this sample.
std::vector<at::Tensor>& gradients_of(StageState& state, int64_t update);
/// Gives every trainable parameter a gradient, zeros if no item had a share. Gradients are dense, except those by rows
/// (kernels/table_rows.h) to which no other copy of the stage or of the weight contributes and which the update accepts
/// in that form.
void complete_gradients(const PlanTable& plan, const StageState& state, std::vector<at::Tensor>& gradients);
/// The same for one parameter, by its place in StageEntry::params.
void complete_gradient(const PlanTable& plan, const StageState& state, size_t index,
                       std::vector<at::Tensor>& gradients);
/// Loads what training changes, trainable parameters and running statistics, from a file that --save wrote.
void take_weights(StageState& state, const Safetensors& file, const Device& device);

/// As the optimizer sees them: the main weights, if there are any.
std::vector<NamedTensor> named_updated_parameters(const StageState& state, const Device& device);
/// Under their ONNX names and on the CPU: the parameters that --save writes (constants are not parameters), the same
/// with moving averages in place of those that train, and the gradients.
std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device);
std::vector<NamedTensor> named_averages(const StageState& state, const Device& device);
std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device);
/// After the last update, as described at wire::step_file: second moments if updates divide by their root, and float64
/// pairs.
std::vector<NamedTensor> named_second_moments(const StageState& state, const Device& device);
std::vector<NamedTensor> named_update_scales(const StageState& state, const Device& device);

/// What a resumed training needs in addition to the parameters, on the CPU: for every trainable parameter the
/// optimizer's state, "exp_avg/NAME" and the like, "gradient_sum/NAME" between two updates, and "ema/NAME", its moving
/// average; with stage 0 also "loss_scale/". The name of a state contains no '/', so the first one ends it. On the host
/// these are the tensors themselves, which the next step changes.
std::vector<NamedTensor> named_optimizer_states(const StageState& state, const Device& device);
/// Of a replica that has a part of the optimizer's state, that part alone: "exp_avg@FIRST/NAME" from element FIRST on,
/// a flat tensor, and counts of updates likewise. named_optimizer_states names it so too.
std::vector<NamedTensor> named_owned_states(const StageState& state, const Device& device);
/// Restores what named_optimizer_states returned, under any plan of the same model and optimizer. A parameter without
/// any state in the file starts afresh. Throws RunError (kMalformedFile) if the file holds only part of a parameter's
/// state, or state of another type or shape. `find` returns the tensor of such a name, or an undefined one, and of
/// parts the whole, flat.
using StateLookup = std::function<at::Tensor(const std::string& name)>;
void take_optimizer_states(StageState& state, const StateLookup& find, const Device& device);

/// The factor over each divisor, in the form that the stage's loss-scale slot takes: a number where there is one.
at::Tensor loss_scale_tensor(std::span<const double> divisors, double factor);

}  // namespace graphpipe::runtime
