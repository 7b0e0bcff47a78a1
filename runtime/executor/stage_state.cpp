#include "runtime/executor/stage_state.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/error.h"
#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/kernels/table_rows.h"
#include "runtime/tensors.h"
#include "support/check.h"
#include "wire/scan_numbers.h"
#include "wire/tied_weights.h"

namespace graphpipe::runtime {
namespace {

std::string type_words(const TensorPlace& place) {
  const std::optional<ElementType> type = element_type(place.type);
  return text(type ? element_name(*type) : c10::toString(place.type), shape_text(place.dims));
}

// What the file has where it lacks the tensor: those that are called alike, or else its first ones.
std::string found_instead(const std::string& name, const Safetensors& file) {
  constexpr size_t kShown = 3;
  std::vector<std::string> alike, first;
  for (const auto& [other, place] : file.tensors()) {
    // Wrappers of modules put a prefix in front of names, or take it away.
    const bool ends_alike = other.ends_with("." + name) || name.ends_with("." + other);
    std::vector<std::string>& shown = ends_alike ? alike : first;
    if (shown.size() < kShown) shown.push_back(text(quoted(ModelText(other)), ", ", type_words(place)));
  }
  std::string found;
  for (const std::string& tensor : alike.empty() ? first : alike) found += (found.empty() ? "" : "; ") + tensor;
  const size_t count = file.tensors().size();
  return text("it has ", count, count == 1 ? " tensor" : " tensors", found.empty() ? "" : ", such as ", found);
}

// Under any of its names; null: the file does not have it.
const TensorPlace* find_by_any_name(const ParamRow& row, const Safetensors& file) {
  std::vector<std::string> names{row.name};
  names.insert(names.end(), row.aliases.begin(), row.aliases.end());
  const auto bytes_of = [&](std::string_view name) {
    const TensorPlace* place = file.find(std::string(name));
    return place == nullptr ? std::nullopt : std::optional(bytes_in(file.view(*place)));
  };
  const std::optional<std::string> name = value_or_throw(wire::find_tied_weight(names, bytes_of));
  return name ? file.find(*name) : nullptr;
}

const TensorPlace& place_of(const ParamRow& row, ElementType type, const Safetensors& file, const char* hint) {
  const TensorPlace* place = find_by_any_name(row, file);
  const std::vector<int64_t> dims = shape_of(row.tensor, 1);
  if (place != nullptr && place->type == scalar_type(type) && place->dims == dims) return *place;
  const std::string found = place == nullptr ? found_instead(row.name, file) : "there it is " + type_words(*place);
  fail(Code::kMalformedFile,
       text("the weights file has no ", element_name(type), shape_text(dims), " named ", quoted(ModelText(row.name)),
            ": ", found),
       hint);
}

// The gradient of the step's last update; undefined if there is none.
at::Tensor last_gradient(const StageState& state, size_t index) {
  if (state.gradients.empty()) return {};
  const at::Tensor& gradient = state.gradients.rbegin()->second[index];
  return gradient.defined() ? dense_gradient(gradient) : gradient;
}

// Whether nothing sums the gradient over copies or steps, and the update accepts it in sparse form.
bool may_stay_sparse(const PlanTable& plan, const StageState& state, size_t index) {
  return plan.stages[static_cast<size_t>(state.entry->stage)].replicas == 1 &&
         shared_group(plan, state.entry->params[index].group) == nullptr &&
         (state.updates == nullptr || state.updates->options.accumulate == 1) &&
         state.optimizer.takes_rows(index, state.weights[index]);
}

// In addition to those of optimizers (named_optimizer_states).
constexpr const char *kGradientSum = "gradient_sum", *kAverage = "ema", *kLossScale = "loss_scale/";

std::string state_name(const std::string& kind, const ParamRow& row) { return kind + "/" + row.name; }

// What the state of a file is for a tensor of the state here; undefined if it does not fit. `own`: the elements that
// the replica has; null: all.
at::Tensor fitting_state(const at::Tensor& found, const at::Tensor& tensor, at::IntArrayRef weight,
                         const ElementRange* own) {
  if (found.scalar_type() != tensor.scalar_type()) return {};
  if (found.sizes() == tensor.sizes() && (own == nullptr || tensor.dim() == 0)) return found;
  const bool is_whole =
      found.sizes() == weight || (found.dim() == 1 && found.numel() == c10::multiply_integers(weight));
  const bool is_number = tensor.dim() == 0 && !weight.empty();  // such as a count of updates
  if (!is_whole || is_number) return {};
  if (own != nullptr) return elements_in(found, *own);
  return found.numel() == tensor.numel() ? found.view(tensor.sizes()) : at::Tensor();
}

[[noreturn]] void refuse_state(const std::string& kind, const ParamRow& row, const at::Tensor& found) {
  const int64_t elements = c10::multiply_integers(shape_of(row.tensor, 1));
  // Parts that replicas have written, joined: a part that is missing in between is noticed there, not one at the end.
  const std::string why = found.dim() == 1 && found.numel() < elements
                              ? text("has ", found.numel(), " elements of ", elements, ": parts of it are missing")
                              : "has another type or shape than the model's";
  fail(Code::kMalformedFile, text("the checkpoint's state ", kind, " of ", quoted(ModelText(row.name)), " ", why),
       "go on from a checkpoint of this model and optimizer");
}

// Returns false if the file does not have the tensor.
bool take_state_tensor(at::Tensor& tensor, const std::string& kind, const ParamRow& row, const StateLookup& find,
                       const Device& device, const ElementRange* own = nullptr) {
  const at::Tensor whole = find(state_name(kind, row));
  if (!whole.defined()) return false;
  const at::Tensor found = fitting_state(whole, tensor, shape_of(row.tensor, 1), own);
  if (!found.defined()) refuse_state(kind, row, whole);
  tensor.copy_(device.upload(found));
  return true;
}

// All of the state or none: that of a parameter of which the file has none is a fresh one.
void take_rule_state(StageState& state, size_t index, const StateLookup& find, const Device& device) {
  const ParamRow& row = state.entry->params[index];
  const at::Tensor weight = owned_part(state, index, state.weights[index]);
  const ElementRange* own = state.owned.empty() ? nullptr : &state.owned[index];
  if (own != nullptr && own->count == 0) return;
  ParameterState parts = state.optimizer.fresh_state(index, weight);
  size_t found = 0;
  for (NamedTensor& part : parts) found += take_state_tensor(part.tensor, part.name, row, find, device, own) ? 1 : 0;
  if (found == 0) return;
  if (found < parts.size())
    fail(Code::kMalformedFile, text("the optimizer's state of ", quoted(ModelText(row.name)), " is not whole"),
         "go on from a checkpoint of this model and optimizer");
  state.optimizer.take_state(index, std::move(parts));
}

at::Tensor load_parameter(const ParamRow& row, const WeightFiles& files) {
  // Constants are part of the model: files that a run saves do not contain them.
  const bool is_own = files.own != nullptr && row.role != ParamRole::kConstant;
  const Safetensors& file = is_own ? *files.own : files.folder;
  const TensorPlace& place =
      place_of(row, row.tensor.type, file,
               is_own ? "pass --weights a file that `run --save` of this model wrote" : "generate the folder again");
  const at::Tensor mapped = file.view(place);
  // The folder's own weights were checked when they were written, and the manifest's digest covers them.
  const auto not_finite = is_own ? wire::find_not_finite(row.tensor.type, place.dims, bytes_in(mapped)) : std::nullopt;
  if (not_finite)
    fail(Code::kBadData, text("the weights ", quoted(ModelText(row.name)), ": ", *not_finite),
         "start from weights of an earlier step: training cannot recover from these");
  const bool aligned = place.bytes == 0 || reinterpret_cast<uintptr_t>(mapped.data_ptr()) % 64 == 0;
  const bool read_only = row.role == ParamRole::kFrozen || row.role == ParamRole::kConstant;
  return read_only && aligned && !place.is_shared ? mapped : mapped.clone();
}

}  // namespace

StageState load_stage(const StageEntry& entry, int32_t replica, const WeightFiles& files, const UpdateSettings& updates,
                      const Device& device) {
  std::vector<UpdateTerms> terms;
  for (const ParamRow& row : entry.params)
    terms.push_back(updates.terms_of(row.name, row.tensor.dims.size(), row.is_table, row.aliases));
  StageState state{.entry = &entry,
                   .replica = replica,
                   .trainable = trainable_parameters(entry),
                   .weights = {},
                   .older = {},
                   .gradients = {},
                   .optimizer = Optimizer(updates.optimizer, std::move(terms), updates.options.main_weights),
                   .updates = &updates};
  for (const ParamRow& row : entry.params) state.weights.push_back(device.upload(load_parameter(row, files)));
  state.gradient_sums.resize(entry.params.size());
  if (updates.options.average_decay > 0 && replica == 0) {
    state.averages.resize(entry.params.size());
    for (size_t index : state.trainable)
      state.averages[index] = state.optimizer.updated_weight(index, state.weights[index]).clone();
  }
  return state;
}

void divide_optimizer_state(const PlanTable& plan, StageState& state) {
  const StageRow& row = plan.stages[static_cast<size_t>(state.entry->stage)];
  if (!row.shards_optimizer || plan.server >= 0) return;
  state.owned.resize(state.weights.size());
  for (const size_t index : state.trainable) {
    state.owned[index] = owned_elements(state.weights[index].numel(), index, state.replica, row.replicas);
    if (state.updates->options.average_decay > 0 && state.optimizer.has_main_weight(state.weights[index]))
      fail(Code::kUsage,
           text("--ema averages main weights, which the replicas of stage ", state.entry->stage, " divide"),
           "leave out --ema, plan without --shard-optimizer, or pass --no-main-weights");
  }
}

void begin_optimizer(StageState& state) {
  for (const size_t index : state.trainable)
    if (state.owned.empty() || state.owned[index].count > 0)
      state.optimizer.begin(index, owned_part(state, index, state.weights[index]));
}

at::Tensor owned_part(const StageState& state, size_t index, const at::Tensor& tensor) {
  return state.owned.empty() ? tensor : elements_in(tensor, state.owned[index]);
}

double replica_rate(const PlanTable& plan, const UpdateSettings& settings, int32_t stage) {
  if (!settings.options.scales_by_replicas) return 1;
  return static_cast<double>(plan.stages[static_cast<size_t>(stage)].replicas) / plan.stages.front().replicas;
}

void take_weights(StageState& state, const Safetensors& file, const Device& device) {
  for (size_t i = 0; i < state.weights.size(); ++i) {
    const ParamRow& row = state.entry->params[i];
    if (row.role != ParamRole::kTrainable && row.role != ParamRole::kBuffer) continue;
    const bool has_main = row.role == ParamRole::kTrainable && state.optimizer.has_main_weight(state.weights[i]);
    const ElementType type = has_main ? ElementType::kFloat32 : row.tensor.type;
    const at::Tensor found = file.view(place_of(row, type, file, "record the steps of this model"));
    if (row.role == ParamRole::kTrainable) state.optimizer.set_weight(i, state.weights[i], device.upload(found));
    else state.weights[i].copy_(device.upload(found));
  }
}

void begin_step(StageState& state, int64_t step, StepShares shares) {
  state.step = step;
  state.shares = shares;
  state.gradient_factor = state.loss_scale == nullptr ? 1 : 1 / state.loss_scale->scale();
  state.prepared.clear();
  state.gradients.clear();
  state.older.clear();
  state.newest = 0;
}

void end_step(StageState& state) {
  if (!state.keeps_gradients) state.gradients.clear();
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

void complete_gradient(const PlanTable& plan, const StageState& state, size_t index,
                       std::vector<at::Tensor>& gradients) {
  at::Tensor& gradient = gradients[index];
  if (!gradient.defined()) gradient = at::zeros_like(state.weights[index]);
  else if (!gradient.is_sparse()) gradient = gradient.contiguous();
  else if (!may_stay_sparse(plan, state, index)) gradient = dense_gradient(gradient);
}

void complete_gradients(const PlanTable& plan, const StageState& state, std::vector<at::Tensor>& gradients) {
  for (const size_t index : state.trainable) complete_gradient(plan, state, index, gradients);
}

std::vector<NamedTensor> named_parameters(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < state.weights.size(); ++i)
    if (state.entry->params[i].role != ParamRole::kConstant)
      out.push_back({state.entry->params[i].name, device.download(state.weights[i])});
  return out;
}

std::vector<NamedTensor> named_updated_parameters(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out = named_parameters(state, device);
  for (size_t index : state.trainable) {
    if (!state.optimizer.has_main_weight(state.weights[index])) continue;
    const auto found = std::ranges::find(out, state.entry->params[index].name, &NamedTensor::name);
    GP_CHECK(found != out.end());
    found->tensor = device.download(state.optimizer.updated_weight(index, state.weights[index]));
  }
  return out;
}

std::vector<NamedTensor> named_averages(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out = named_parameters(state, device);
  for (size_t index : state.trainable) {
    const auto found = std::ranges::find(out, state.entry->params[index].name, &NamedTensor::name);
    GP_CHECK(found != out.end() && !state.averages.empty());
    found->tensor = device.download(state.averages[index].to(state.weights[index].scalar_type()));
  }
  return out;
}

std::vector<NamedTensor> named_gradients(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable)
    if (const at::Tensor gradient = last_gradient(state, index); gradient.defined())
      out.push_back({state.entry->params[index].name, device.download(gradient)});
  return out;
}

std::vector<NamedTensor> named_second_moments(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable) {
    const at::Tensor gradient = last_gradient(state, index);
    if (!gradient.defined()) continue;
    const at::Tensor moment = state.optimizer.scale(index, gradient).second_moment;
    if (moment.defined()) out.push_back({state.entry->params[index].name, device.download(moment)});
  }
  return out;
}

std::vector<NamedTensor> named_update_scales(const StageState& state, const Device&) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable) {
    const at::Tensor gradient = last_gradient(state, index);
    if (!gradient.defined()) continue;
    at::Tensor pair = at::empty({2}, at::TensorOptions().dtype(at::kDouble));
    pair.mutable_data_ptr<double>()[0] = state.optimizer.last_rate(index);
    pair.mutable_data_ptr<double>()[1] = state.optimizer.scale(index, gradient).gradient_norm;
    out.push_back({state.entry->params[index].name, pair});
  }
  return out;
}

std::vector<NamedTensor> named_owned_states(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t index : state.trainable) {
    const bool is_part = !state.owned.empty();
    if (is_part && state.owned[index].count == 0) continue;
    const std::string from = is_part ? text("@", state.owned[index].first) : "";
    for (const NamedTensor& part : state.optimizer.state(index))
      out.push_back({state_name(part.name + from, state.entry->params[index]), device.download(part.tensor)});
  }
  return out;
}

std::vector<NamedTensor> named_optimizer_states(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out = named_owned_states(state, device);
  const auto add = [&](const std::string& kind, size_t index, const at::Tensor& tensor) {
    out.push_back({state_name(kind, state.entry->params[index]), device.download(tensor)});
  };
  if (state.loss_scale != nullptr && state.entry->stage == 0) out.push_back({kLossScale, state.loss_scale->state()});
  for (size_t index : state.trainable) {
    if (!state.gradient_sums.empty() && state.gradient_sums[index].defined())
      add(kGradientSum, index, state.gradient_sums[index]);
    if (!state.averages.empty()) add(kAverage, index, state.averages[index]);
  }
  return out;
}

void take_optimizer_states(StageState& state, const StateLookup& find, const Device& device) {
  if (const at::Tensor scale = find(kLossScale);
      state.loss_scale != nullptr && scale.defined() && !state.loss_scale->take_state(scale))
    fail(Code::kMalformedFile, "the checkpoint's loss scale is no power of two with a count of updates",
         "go on from a checkpoint of this model");
  for (size_t index : state.trainable) {
    const ParamRow& row = state.entry->params[index];
    take_rule_state(state, index, find, device);
    // Whole, also where the main weight is a part: every replica sums up all of the gradient.
    const bool has_main = state.optimizer.has_main_weight(state.weights[index]);
    at::Tensor sum = at::zeros_like(state.weights[index], has_main ? at::kFloat : state.weights[index].scalar_type());
    if (take_state_tensor(sum, kGradientSum, row, find, device)) {
      if (state.updates == nullptr || state.updates->options.accumulate == 1)
        fail(Code::kUsage, "the checkpoint lies between two updates of a run with --accumulate",
             "go on with the same --accumulate");
      state.gradient_sums[index] = sum;
    }
    // Without an average in the file it starts from the weights, which are loaded by now.
    if (state.averages.empty()) continue;
    state.averages[index].copy_(state.optimizer.updated_weight(index, state.weights[index]));
    take_state_tensor(state.averages[index], kAverage, row, find, device);
  }
}

at::Tensor loss_scale_tensor(std::span<const double> divisors, double factor) {
  const auto count = std::ssize(divisors);
  at::Tensor scale(count == 1 ? at::detail::empty_cpu({}, at::kFloat) : at::detail::empty_cpu({count}, at::kFloat));
  float* const numbers = scale.mutable_data_ptr<float>();
  for (size_t i = 0; i < divisors.size(); ++i) numbers[i] = static_cast<float>(1 / (divisors[i] / factor));
  return scale;
}

}  // namespace graphpipe::runtime
