#include "runtime/checkpoint/shards.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "runtime/error.h"
#include "runtime/executor/check_copies.h"
#include "runtime/executor/resolve.h"
#include "runtime/tensors.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {
namespace {

constexpr std::string_view kWeightsEnd = ".weights.safetensors", kOptimizerEnd = ".optimizer.safetensors",
                           kBuffersEnd = ".buffers.safetensors";

std::string buffers_file(const StageState& state) {
  return text("stage", state.entry->stage, ".replica", state.replica, kBuffersEnd);
}

std::vector<std::string> paths_with_end(const std::string& folder, const wire::CheckpointRecord& record,
                                        std::string_view end) {
  std::vector<std::string> paths;
  for (const wire::ManifestEntry& entry : record.files)
    if (entry.path.ends_with(end)) paths.push_back(folder + "/" + entry.path);
  return paths;
}

// Copies of shared weights are equal: the first of their stages saves them for all.
bool is_kept_elsewhere(const PlanTable& plan, const StageState& state, const std::string& name) {
  for (const ParamRow& row : state.entry->params) {
    if (name != row.name) continue;
    const GroupRow* group = shared_group(plan, row.group);
    if (group != nullptr && group->stages.front() != state.entry->stage) return true;
  }
  return false;
}

std::string optimizer_file(const StageState& state) {
  const std::string stage = text("stage", state.entry->stage);
  return state.replica == 0 ? stage + std::string(kOptimizerEnd)
                            : text(stage, ".replica", state.replica, kOptimizerEnd);
}

std::string kind_of(const std::string& state_name) { return state_name.substr(0, state_name.find('/')); }
std::string parameter_of(const std::string& state_name) { return state_name.substr(state_name.find('/') + 1); }

/// A part of a state: "exp_avg@128/NAME" is "exp_avg/NAME" from its element 128 on.
struct PartOfState {
  std::string whole;
  int64_t first = 0;
};

std::optional<PartOfState> part_of_state(const std::string& name) {
  const std::string kind = kind_of(name);
  const size_t at = kind.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  PartOfState part{.whole = kind.substr(0, at) + name.substr(kind.size())};
  const char* const end = kind.data() + kind.size();
  const auto [rest, error] = std::from_chars(kind.data() + at + 1, end, part.first);
  return error == std::errc() && rest == end ? std::optional(part) : std::nullopt;
}

void add_shard(std::string file, std::vector<NamedTensor> tensors, const StageState& state,
               std::vector<Shard>& shards) {
  if (!tensors.empty()) shards.push_back({std::move(file), std::move(tensors), &state});
}

std::vector<NamedTensor> buffers_of(const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < state.weights.size(); ++i)
    if (state.entry->params[i].role == ParamRole::kBuffer)
      out.push_back({state.entry->params[i].name, device.download(state.weights[i])});
  return out;
}

// Trained parameters of this state that another state's file holds.
std::vector<NamedTensor> other_copies(const PlanTable& plan, const StageState& state, const Device& device) {
  std::vector<NamedTensor> out;
  for (const size_t index : state.trainable) {
    const char* name = state.entry->params[index].name;
    if (state.replica != 0 || is_kept_elsewhere(plan, state, name))
      out.push_back({name, device.download(state.weights[index])});
  }
  return out;
}

bool fit(const Shard& copy, const Shard& shard) {
  if (copy.file != shard.file || copy.tensors.size() != shard.tensors.size()) return false;
  for (size_t i = 0; i < copy.tensors.size(); ++i) {
    const at::Tensor& have = copy.tensors[i].tensor;
    const at::Tensor& want = shard.tensors[i].tensor;
    if (copy.tensors[i].name != shard.tensors[i].name || have.scalar_type() != want.scalar_type() ||
        have.sizes() != want.sizes())
      return false;
  }
  return true;
}

[[noreturn]] void misfit(const std::string& folder, const std::string& name, std::string_view why) {
  throw RunError(Diagnostic{.code = Code::kMalformedFile,
                            .origin = ModelText(folder),
                            .message = text("the checkpoint's ", quoted(ModelText(name)), " ", why),
                            .hint = "resume from a checkpoint of this model and optimizer"});
}

}  // namespace

bool Shard::holds_weights() const { return file.ends_with(kWeightsEnd); }
bool Shard::holds_buffers() const { return file.ends_with(kBuffersEnd); }

std::vector<Shard> shards_of(const PlanTable& plan, const StageState& state, const Device& device) {
  std::vector<Shard> shards;
  const auto add_optimizer = [&](std::vector<NamedTensor> tensors) {
    std::erase_if(tensors,
                  [&](const NamedTensor& named) { return is_kept_elsewhere(plan, state, parameter_of(named.name)); });
    add_shard(optimizer_file(state), std::move(tensors), state, shards);
  };
  if (state.replica != 0) {
    add_shard(buffers_file(state), buffers_of(state, device), state, shards);
    if (!state.owned.empty()) add_optimizer(named_owned_states(state, device));
    add_shard("", other_copies(plan, state, device), state, shards);
    return shards;
  }
  const std::string stage = text("stage", state.entry->stage);
  std::vector<NamedTensor> weights = named_parameters(state, device);
  std::erase_if(weights, [&](const NamedTensor& named) { return is_kept_elsewhere(plan, state, named.name); });
  add_shard(stage + std::string(kWeightsEnd), std::move(weights), state, shards);
  add_optimizer(named_optimizer_states(state, device));
  add_shard("", other_copies(plan, state, device), state, shards);
  return shards;
}

std::vector<std::byte> digest_shards(const PlanTable& plan, const std::vector<Shard>& shards) {
  std::vector<std::byte> out;
  for (const Shard& shard : shards) {
    if (!shard.file.empty() && !shard.holds_weights()) continue;
    const std::vector<std::byte> of_shard = digest_copies(plan, *shard.state, shard.tensors);
    out.insert(out.end(), of_shard.begin(), of_shard.end());
  }
  return out;
}

void ShardCopies::take(const std::vector<Shard>& shards) {
  copies_.resize(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    if (fit(copies_[i], shards[i])) {
      for (size_t t = 0; t < shards[i].tensors.size(); ++t)
        copies_[i].tensors[t].tensor.copy_(shards[i].tensors[t].tensor);
      continue;
    }
    copies_[i] = shards[i];
    for (NamedTensor& named : copies_[i].tensors) named.tensor = named.tensor.clone();
  }
}

CheckpointTensors::CheckpointTensors(const std::string& folder, const wire::CheckpointRecord& record)
    : folder_(folder),
      weights_(paths_with_end(folder, record, kWeightsEnd)),
      optimizer_(paths_with_end(folder, record, kOptimizerEnd)),
      must_have_state_(!record.losses.empty() && wire::optimizer_named(record.optimizer).always_has_state()) {
  for (const wire::ManifestEntry& entry : record.files)
    if (entry.path.ends_with(kBuffersEnd)) buffers_.emplace(entry.path, folder + "/" + entry.path);
  for (const auto& [name, place] : optimizer_.tensors()) {
    const auto part = part_of_state(name);
    if (part) parts_[part->whole][part->first] = name;
    kinds_.insert(kind_of(part ? part->whole : name));
  }
}

void CheckpointTensors::restore(StageState& state, bool same_plan, const Device& device) const {
  for (size_t index = 0; index < state.weights.size(); ++index) restore_weight(state, index, same_plan, device);
  take_optimizer_states(
      state, [this](const std::string& name) { return optimizer_state(name); }, device);
  check_states(state, same_plan);
}

// All trained parameters of a plan have a state.
void CheckpointTensors::check_states(const StageState& state, bool same_plan) const {
  std::vector<size_t> missing;
  if (kinds_.empty() && must_have_state_ && !state.trainable.empty())
    misfit(folder_, state.entry->params[state.trainable.front()].name,
           "has no optimizer state there, and no other parameter has: a part is missing");
  for (const size_t index : state.trainable) {
    if (!state.optimizer.state(index).empty() || (!state.owned.empty() && state.owned[index].count == 0)) continue;
    const ParameterState fresh = state.optimizer.fresh_state(index, owned_part(state, index, state.weights[index]));
    if (std::ranges::any_of(fresh, [&](const NamedTensor& part) { return kinds_.contains(part.name); }))
      missing.push_back(index);
  }
  if (missing.empty()) return;
  const std::string name = state.entry->params[missing.front()].name;
  if (same_plan) misfit(folder_, name, "has no optimizer state there, and other parameters have: a part is missing");
  if (state.replica != 0) return;  // the first one tells
  const Diagnostic note{.code = Code::kMalformedFile,
                        .severity = Severity::kNote,
                        .origin = ModelText(folder_),
                        .message = text("the checkpoint has no optimizer state of ", quoted(ModelText(name)),
                                        missing.size() > 1 ? text(" and ", missing.size() - 1, " more") : "",
                                        ", which the plan that wrote it did not train: it begins anew")};
  std::fprintf(stderr, "%s\n", to_line(note).c_str());
}

at::Tensor CheckpointTensors::optimizer_state(const std::string& name) const {
  if (const TensorPlace* place = optimizer_.find(name); place != nullptr) return optimizer_.view(*place);
  const auto found = parts_.find(name);
  return found == parts_.end() ? at::Tensor() : joined_parts(name, found->second);
}

at::Tensor CheckpointTensors::joined_parts(const std::string& name, const std::map<int64_t, std::string>& parts) const {
  std::vector<at::Tensor> tensors;
  int64_t next = 0;
  for (const auto& [first, part] : parts) {
    const at::Tensor& tensor = tensors.emplace_back(optimizer_.view(*optimizer_.find(part)));
    if (tensor.dim() == 0) return tensor;  // a number that all parts have
    if (tensor.dim() != 1 || first != next || tensor.scalar_type() != tensors.front().scalar_type())
      misfit(folder_, name, "is not whole: parts of it are missing");
    next += tensor.numel();
  }
  return at::cat(tensors);
}

void CheckpointTensors::restore_weight(StageState& state, size_t index, bool same_plan, const Device& device) const {
  const ParamRow& row = state.entry->params[index];
  if (row.role == ParamRole::kConstant) return;
  const Safetensors* file = &weights_;
  const auto own = buffers_.find(buffers_file(state));
  if (row.role == ParamRole::kBuffer && same_plan && own != buffers_.end()) file = &own->second;
  const TensorPlace* place = file->find(row.name);
  if (place == nullptr) misfit(folder_, row.name, "is missing");
  at::Tensor& weight = state.weights[index];
  if (place->type != weight.scalar_type() || weight.sizes() != at::IntArrayRef(place->dims))
    misfit(folder_, row.name, "has another type or shape than the model's");
  // A fresh tensor: a frozen weight may be the mapping of the folder's own weights.
  weight = device.upload(file->view(*place).clone());
}

}  // namespace graphpipe::runtime
