#pragma once
// What a replica of a stage keeps between actions: weights, gradients, optimizer state. Shared by the executor and the
// serial interpreter, which differ in everything that moves.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/io/safetensors.h"
#include "runtime/optimizers/loss_scale.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/optimizers/update_settings.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

struct StageState {
  const StageEntry* entry = nullptr;
  int32_t replica = 0;
  std::vector<size_t> trainable;    // parameter indices, ascending
  std::vector<at::Tensor> weights;  // the newest version, by parameter
  int32_t newest = 0;               // its number in this step
  /// Versions that are still read. Only trainable parameters have copies: what no optimizer changes is one tensor in
  /// all versions, so BatchNorm's statistics are those of all items, whichever version they read.
  std::map<int32_t, std::vector<at::Tensor>> older;
  /// By first sample of the update, by parameter; undefined until the first share. The last update's go as the step
  /// ends, so that their memory serves the activations of the next one; where they are kept, as that one begins.
  std::map<int64_t, std::vector<at::Tensor>> gradients;
  bool keeps_gradients = false;
  Optimizer optimizer;
  /// Null: every step updates, and nothing is clipped or averaged. The settings must outlive the state.
  const UpdateSettings* updates = nullptr;
  int64_t step = 0;  // of the whole training, from 0
  /// Where gradients are of a scaled loss: the rank's scale, which must outlive the state; and its reciprocal in this
  /// step.
  LossScale* loss_scale = nullptr;
  double gradient_factor = 1;
  /// What the learning rate is multiplied with in this stage (replica_rate).
  double rate = 1;
  /// Updates of this step whose gradients are what the optimizer takes (update_weights.h).
  std::set<int64_t> prepared;
  /// By parameter: of the steps since the last update, undefined where there are none; and the moving average of the
  /// weights, which replica 0 keeps where the run asks for it.
  std::vector<at::Tensor> gradient_sums, averages;
};

/// Where a run's first weights come from.
struct WeightFiles {
  /// The generated folder's: all parameters and constants of the model.
  const Safetensors& folder;
  /// What an earlier run has saved, to be used in place of the folder's parameters; null: nothing.
  const Safetensors* own = nullptr;
};

/// Loads the stage's parameters onto the device: on the CPU private copies of what training changes and the mapping
/// itself of the rest. Throws RunError (kMalformedFile) where a file does not fit the table. The files and the settings
/// must outlive the state.
StageState load_stage(const StageEntry& entry, int32_t replica, const WeightFiles& files, const UpdateSettings& updates,
                      const Device& device);

/// R(s)/R(0), the replicas of the stage over those of the first one, where the run scales learning rates by them; else
/// 1 (docs/training.md, Optimizers).
double replica_rate(const PlanTable& plan, const UpdateSettings& settings, int32_t stage);

/// Forgets the gradients of the step before; the newest version becomes version 0.
void begin_step(StageState& state, int64_t step);
/// Lets go what nothing reads any more.
void end_step(StageState& state);
/// The version's parameters. GP_CHECKs that it exists: programs are checked when they are resolved.
const std::vector<at::Tensor>& weights_of(const StageState& state, int32_t version);
void free_version(StageState& state, int32_t version);
/// The accumulators of the update that begins at this sample.
std::vector<at::Tensor>& gradients_of(StageState& state, int64_t update);
/// Gives every trainable parameter a gradient, zeros where no item had a share: a dense one, but for those by rows
/// (kernels/table_rows.h) that no other copy of the stage or of the weight adds to and the update takes as they are.
void complete_gradients(const PlanTable& plan, const StageState& state, std::vector<at::Tensor>& gradients);
/// Takes what training changes, trainable parameters and running statistics, from such a file as --save writes.
void take_weights(StageState& state, const Safetensors& file, const Device& device);

/// As the optimizer has them: the main weights of those that have some.
std::vector<NamedTensor> named_updated_parameters(const StageState& state, const Device& device);
/// Under their ONNX names and on the CPU: the parameters that --save writes (constants are no parameters), the same
/// with the moving averages of those that train, and the gradients.
std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device);
std::vector<NamedTensor> named_averages(const StageState& state, const Device& device);
std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device);
/// Of the last update, as wire::step_file says: second moments where updates divide by their root, and float64 pairs.
std::vector<NamedTensor> named_second_moments(const StageState& state, const Device& device);
std::vector<NamedTensor> named_update_scales(const StageState& state, const Device& device);

/// What a training that goes on needs beside the parameters, on the CPU: "exp_avg/NAME" and the like of every trainable
/// parameter, what the optimizer remembers of it, "gradient_sum/NAME" between two updates, and "ema/NAME", its moving
/// average; with stage 0 also "loss_scale/". A state's name holds no '/', so that the first one ends it. On the host
/// these are the tensors themselves, which the next step changes.
std::vector<NamedTensor> named_optimizer_states(const StageState& state, const Device& device);
/// Goes on from what named_optimizer_states gave, of any plan of the same model and optimizer. A parameter of which the
/// file has nothing begins anew. Throws RunError (kMalformedFile) where the file holds only a part of a parameter's
/// state, or one of another type or shape.
/// `find` gives the tensor of such a name, undefined where there is none.
using StateLookup = std::function<at::Tensor(const std::string& name)>;
void take_optimizer_states(StageState& state, const StateLookup& find, const Device& device);

/// 1/N as the stage's loss-scale slot takes it.
at::Tensor loss_scale_tensor(double divisor);

}  // namespace graphpipe::runtime
