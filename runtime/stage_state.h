#pragma once
// What a replica of a stage keeps between actions: weights, gradients, optimizer state. Shared by the executor and the
// serial interpreter, which differ in everything that moves.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/device/device.h"
#include "runtime/optimizer.h"
#include "runtime/program.h"
#include "runtime/safetensors.h"

namespace graphpipe::runtime {

struct StageState {
  const StageEntry* entry = nullptr;
  int32_t replica = 0;
  std::vector<size_t> trainable;      // parameter indices, ascending
  std::vector<at::Tensor> weights;    // by parameter
  std::vector<at::Tensor> gradients;  // by parameter
  Optimizer optimizer;
};

/// Loads the stage's parameters onto the device: on the CPU private copies of what training changes and the mapping
/// itself of the rest. Throws
/// RunError (kMalformedFile) where the file does not fit the table. `file` must outlive the state.
StageState load_stage(const StageEntry& entry, int32_t replica, const Safetensors& file,
                      const OptimizerNumbers& numbers, const Device& device);

/// Gives every trainable parameter a dense gradient: zeros where no item had a share.
void complete_gradients(StageState& state);
/// The state's part of the squared global norm: parameters whose group is not already counted by an earlier stage.
double squared_gradient_norm(const PlanTable& plan, const StageState& state);
/// One optimizer step with gradients scaled by `factor` (in place, so that they are saved as they were used).
void step_weights(StageState& state, double factor);
void clear_gradients(StageState& state);

/// The parameters that --save writes (constants are no parameters), and the gradients, under their ONNX names and on
/// the CPU.
std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device);
std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device);

/// 1/N as the stage's loss-scale slot takes it.
at::Tensor loss_scale_tensor(double divisor);

}  // namespace graphpipe::runtime
