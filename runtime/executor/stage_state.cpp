#include "runtime/executor/stage_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/error.h"
#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/optimizers/gradient_norm.h"
#include "runtime/tensors.h"
#include "support/check.h"
#include "wire/scan_numbers.h"

namespace graphpipe::runtime {
namespace {

const TensorPlace& place_of(const ParamRow& row, const Safetensors& file, const char* hint) {
  const TensorPlace* place = file.find(row.name);
  const std::vector<int64_t> dims = shape_of(row.tensor, 1);
  if (place == nullptr || place->type != scalar_type(row.tensor.type) || place->dims != dims)
    fail(Code::kMalformedFile,
         text("the weights file has no ", element_name(row.tensor.type), shape_text(dims), " named ",
              quoted(ModelText(row.name))),
         hint);
  return *place;
}

at::Tensor load_parameter(const ParamRow& row, const WeightFiles& files) {
  // Constants are part of the model: what a run saves does not hold them.
  const bool is_own = files.own != nullptr && row.role != ParamRole::kConstant;
  const Safetensors& file = is_own ? *files.own : files.folder;
  const TensorPlace& place = place_of(
      row, file, is_own ? "pass --weights a file that `run --save` of this model wrote" : "generate the folder again");
  const at::Tensor mapped = file.view(place);
  // The folder's own weights were looked at when they were written, and are those that the manifest names.
  const auto not_finite = is_own ? wire::find_not_finite(row.tensor.type, place.dims, bytes_in(mapped)) : std::nullopt;
  if (not_finite)
    fail(Code::kBadData, text("the weights ", quoted(ModelText(row.name)), ": ", *not_finite),
         "start from weights of an earlier step: training cannot recover from these");
  const bool aligned = place.bytes == 0 || reinterpret_cast<uintptr_t>(mapped.data_ptr()) % 64 == 0;
  const bool read_only = row.role == ParamRole::kFrozen || row.role == ParamRole::kConstant;
  return read_only && aligned ? mapped : mapped.clone();
}

}  // namespace

StageState load_stage(const StageEntry& entry, int32_t replica, const WeightFiles& files,
                      const OptimizerSettings& optimizer, const Device& device) {
  StageState state{.entry = &entry,
                   .replica = replica,
                   .trainable = trainable_parameters(entry),
                   .weights = {},
                   .older = {},
                   .gradients = {},
                   .optimizer = Optimizer(optimizer, entry.params.size())};
  for (const ParamRow& row : entry.params) state.weights.push_back(device.upload(load_parameter(row, files)));
  return state;
}

void take_weights(StageState& state, const Safetensors& file, const Device& device) {
  for (size_t i = 0; i < state.weights.size(); ++i) {
    const ParamRow& row = state.entry->params[i];
    if (row.role != ParamRole::kTrainable && row.role != ParamRole::kBuffer) continue;
    state.weights[i].copy_(device.upload(file.view(place_of(row, file, "record the steps of this model"))));
  }
}

void begin_step(StageState& state) {
  state.gradients.clear();
  state.older.clear();
  state.newest = 0;
}

const std::vector<at::Tensor>& weights_of(const StageState& state, int32_t version) {
  if (version == state.newest) return state.weights;
  const auto found = state.older.find(version);
  GP_CHECK(found != state.older.end());
  return found->second;
}

void free_version(StageState& state, int32_t version) { state.older.erase(version); }

std::vector<at::Tensor>& gradients_of(StageState& state, int64_t update) {
  std::vector<at::Tensor>& gradients = state.gradients[update];
  gradients.resize(state.entry->params.size());
  return gradients;
}

void complete_gradients(const StageState& state, std::vector<at::Tensor>& gradients) {
  for (size_t index : state.trainable) {
    at::Tensor& gradient = gradients[index];
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(state.weights[index]);
  }
}

double squared_gradient_norm(const PlanTable& plan, StageState& state) {
  double sum = 0;
  for (size_t index : state.trainable) {
    const GroupRow* group = shared_group(plan, state.entry->params[index].group);
    if (group != nullptr && group->stages.front() != state.entry->stage) continue;
    sum += squared_norm(gradients_of(state, 0)[index]);
  }
  return sum;
}

void step_weights(StageState& state, int64_t update, double factor, bool keep) {
  if (keep) state.older[state.newest] = state.weights;
  ++state.newest;
  std::vector<at::Tensor>& gradients = gradients_of(state, update);
  for (size_t index : state.trainable) {
    if (keep) state.weights[index] = state.weights[index].clone();
    if (factor != 1) gradients[index].mul_(factor);
    state.optimizer.step(index, state.weights[index], gradients[index]);
  }
  state.gradients.erase(state.gradients.begin(), state.gradients.find(update));
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
  if (state.gradients.empty()) return out;
  const std::vector<at::Tensor>& last = state.gradients.rbegin()->second;
  for (size_t index : state.trainable)
    if (last[index].defined()) out.push_back({state.entry->params[index].name, device.download(last[index])});
  return out;
}

std::vector<NamedTensor> named_second_moments(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable)
    if (const at::Tensor moment = state.optimizer.second_moment(index); moment.defined())
      out.push_back({state.entry->params[index].name, device.download(moment)});
  return out;
}

std::vector<NamedTensor> named_optimizer_states(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable)
    for (const NamedTensor& part : state.optimizer.state(index))
      out.push_back({part.name + "/" + state.entry->params[index].name, device.download(part.tensor)});
  return out;
}

void take_optimizer_states(StageState& state, const Safetensors& file, const Device& device) {
  for (size_t index : state.trainable) {
    ParameterState parts = state.optimizer.fresh_state(state.weights[index]);
    size_t found = 0;
    for (NamedTensor& part : parts) {
      const TensorPlace* place = file.find(part.name + "/" + state.entry->params[index].name);
      if (place == nullptr) continue;
      ++found;
      if (place->type != part.tensor.scalar_type() || at::IntArrayRef(place->dims) != part.tensor.sizes())
        fail(Code::kMalformedFile,
             text("the optimizer's ", part.name, " of ", quoted(ModelText(state.entry->params[index].name)),
                  " has another type or shape than the model's"),
             "go on from a checkpoint of this model and optimizer");
      part.tensor.copy_(device.upload(file.view(*place)));
    }
    if (found == 0) continue;
    if (found < parts.size())
      fail(Code::kMalformedFile,
           text("the optimizer's state of ", quoted(ModelText(state.entry->params[index].name)), " is not whole"),
           "go on from a checkpoint of this model and optimizer");
    state.optimizer.take_state(index, std::move(parts));
  }
}

at::Tensor loss_scale_tensor(double divisor) {
  return at::scalar_tensor(1 / divisor, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace graphpipe::runtime
