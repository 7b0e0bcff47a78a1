#include "runtime/stage_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/error.h"
#include "runtime/plan_channels.h"
#include "runtime/resolve.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

at::Tensor load_parameter(const ParamRow& row, const Safetensors& file) {
  const TensorPlace* place = file.find(row.name);
  const std::vector<int64_t> dims = shape_of(row.tensor, 1);
  if (place == nullptr || place->type != scalar_type(row.tensor.type) || place->dims != dims)
    fail(Code::kMalformedFile,
         text("the weights file has no ", element_name(row.tensor.type), shape_text(dims), " named ",
              quoted(ModelText(row.name))),
         "generate the folder again");
  const at::Tensor mapped = file.view(*place);
  const bool aligned = place->bytes == 0 || reinterpret_cast<uintptr_t>(mapped.data_ptr()) % 64 == 0;
  const bool read_only = row.role == ParamRole::kFrozen || row.role == ParamRole::kConstant;
  return read_only && aligned ? mapped : mapped.clone();
}

}  // namespace

StageState load_stage(const StageEntry& entry, int32_t replica, const Safetensors& file,
                      const OptimizerNumbers& numbers, const Device& device) {
  StageState state{.entry = &entry,
                   .replica = replica,
                   .trainable = trainable_parameters(entry),
                   .weights = {},
                   .gradients = std::vector<at::Tensor>(entry.params.size()),
                   .optimizer = Optimizer(numbers, entry.params.size())};
  for (const ParamRow& row : entry.params) state.weights.push_back(device.upload(load_parameter(row, file)));
  return state;
}

void complete_gradients(StageState& state) {
  for (size_t index : state.trainable) {
    at::Tensor& gradient = state.gradients[index];
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(state.weights[index]);
  }
}

double squared_gradient_norm(const PlanTable& plan, const StageState& state) {
  double sum = 0;
  for (size_t index : state.trainable) {
    const GroupRow* group = shared_group(plan, state.entry->params[index].group);
    if (group != nullptr && group->stages.front() != state.entry->stage) continue;
    sum += squared_norm(state.gradients[index]);
  }
  return sum;
}

void step_weights(StageState& state, double factor) {
  for (size_t index : state.trainable) {
    if (factor != 1) state.gradients[index].mul_(factor);
    state.optimizer.step(index, state.weights[index], state.gradients[index]);
  }
}

void clear_gradients(StageState& state) {
  for (at::Tensor& gradient : state.gradients) gradient.reset();
}

std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < state.weights.size(); ++i)
    if (state.entry->params[i].role != ParamRole::kConstant)
      out.push_back({state.entry->params[i].name, device.download(state.weights[i])});
  return out;
}

std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable)
    if (state.gradients[index].defined())
      out.push_back({state.entry->params[index].name, device.download(state.gradients[index])});
  return out;
}

at::Tensor loss_scale_tensor(double divisor) {
  return at::scalar_tensor(1 / divisor, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace graphpipe::runtime
