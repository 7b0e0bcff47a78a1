#pragma once
// What a replica of a stage keeps between actions: weights, gradients, optimizer state. Shared by the executor and the
// serial interpreter, which differ in everything that moves.

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/io/safetensors.h"
#include "runtime/optimizers/optimizer.h"
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
  /// By first sample of the update, by parameter; undefined until the first share. The last update's stay until the
  /// next step begins.
  std::map<int64_t, std::vector<at::Tensor>> gradients;
  Optimizer optimizer;
};

/// Where a run's first weights come from.
struct WeightFiles {
  /// The generated folder's: all parameters and constants of the model.
  const Safetensors& folder;
  /// What an earlier run has saved, to be used in place of the folder's parameters; null: nothing.
  const Safetensors* own = nullptr;
};

/// Loads the stage's parameters onto the device: on the CPU private copies of what training changes and the mapping
/// itself of the rest. Throws RunError (kMalformedFile) where a file does not fit the table. The files must outlive the
/// state.
StageState load_stage(const StageEntry& entry, int32_t replica, const WeightFiles& files,
                      const OptimizerSettings& optimizer, const Device& device);

/// Forgets gradients; the newest version becomes version 0.
void begin_step(StageState& state);
/// The version's parameters. GP_CHECKs that it exists: programs are checked when they are resolved.
const std::vector<at::Tensor>& weights_of(const StageState& state, int32_t version);
void free_version(StageState& state, int32_t version);
/// The accumulators of the update that begins at this sample.
std::vector<at::Tensor>& gradients_of(StageState& state, int64_t update);
/// Gives every trainable parameter a dense gradient: zeros where no item had a share.
void complete_gradients(const StageState& state, std::vector<at::Tensor>& gradients);
/// The state's part of the squared global norm of the step's only update: parameters whose group is not already counted
/// by an earlier stage.
double squared_gradient_norm(const PlanTable& plan, StageState& state);
/// Makes the next version: one optimizer step with the update's gradients times `factor` (in place, so that they are
/// saved as they were used). `keep` leaves the version before it as it is; else its memory is taken over. Drops the
/// gradients of earlier updates.
void step_weights(StageState& state, int64_t update, double factor, bool keep);

/// Takes what training changes, trainable parameters and running statistics, from such a file as --save writes.
void take_weights(StageState& state, const Safetensors& file, const Device& device);

/// The parameters that --save writes (constants are no parameters), the gradients, and the optimizer's second moments,
/// under their ONNX names and on the CPU.
std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device);
std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device);
std::vector<NamedTensor> named_second_moments(const StageState& state, const Device& device);

/// The optimizer's state, which a training that goes on needs beside the parameters, on the CPU: "exp_avg/NAME" and the
/// like of every trainable parameter that was updated. A state's name holds no '/', so that the first one ends it. With
/// step_weights these are copies only where the device is not the host.
std::vector<NamedTensor> named_optimizer_states(const StageState& state, const Device& device);
/// Goes on from what named_optimizer_states gave, of any plan of the same model and optimizer. A parameter of which the
/// file has nothing begins anew. Throws RunError (kMalformedFile) where the file holds only a part of a parameter's
/// state, or one of another type or shape.
void take_optimizer_states(StageState& state, const Safetensors& file, const Device& device);

/// 1/N as the stage's loss-scale slot takes it.
at::Tensor loss_scale_tensor(double divisor);

}  // namespace graphpipe::runtime
