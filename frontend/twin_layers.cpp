#include "frontend/twin_layers.h"

#include <algorithm>
#include <array>
#include <optional>

#include "frontend/equal_parts.h"
#include "frontend/folding_note.h"
#include "frontend/parameter_names.h"

namespace graphpipe::frontend {
namespace {

/// How torch.export begins the names of values that layers with parameters compute.
constexpr std::array<std::string_view, 9> kLayers = {"addmm",      "conv",   "embedding", "group_norm", "instance_norm",
                                                     "layer_norm", "linear", "prelu",     "rms_norm"};

/// Whether the file has one tensor for both, as the optimiser leaves of those that began equal, or both are zeros.
bool began_equal(const Tensor& one, const Tensor& other) {
  return one.onnx_type == other.onnx_type && one.dims == other.dims && one.layout == other.layout &&
         one.data.slot == other.data.slot && one.data.bytes == other.data.bytes;
}

}  // namespace

bool is_of_layer(std::string_view value) {
  return std::ranges::any_of(kLayers, [&](std::string_view layer) { return value.starts_with(layer); });
}

std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

TwinLayers::TwinLayers(const GraphBody& body, const ExportSignature& signature) : body_(body), signature_(signature) {
  for (const Tensor& tensor : body.initializers) tensors_.emplace(tensor.name, &tensor);
}

void TwinLayers::read(const ExportedCall& call, const std::vector<const OnnxNode*>& nodes) {
  for (const std::string& value : call.values) {
    if (std::string name = signature_.tensor_of(value); signature_.lists_parameter(name))
      taken_by_[call.result].insert(std::move(name));
    if (!is_of_layer(value.substr(1))) continue;
    for (const OnnxNode* node : nodes)
      for (const std::string& input : node->inputs)
        if (call_of_value(input) == call_of_value(value.substr(1)) &&
            std::ranges::find(call.values, "%" + input) == call.values.end())
          twins_[value.substr(1)].insert(input);
  }
}

bool TwinLayers::is_applied_again(const std::string& lost, const UnknownNames& unknown) const {
  const auto twins = twins_.find(lost);
  if (twins == twins_.end() || twins->second.size() != 1) return false;
  const auto taken = taken_by_.find(*twins->second.begin());
  if (taken == taken_by_.end()) return false;
  const std::string module = module_of(*taken->second.begin());
  if (!std::ranges::all_of(taken->second, [&](const std::string& name) { return module_of(name) == module; }))
    return false;
  std::map<std::string, size_t> counts;  // by module
  for (const auto& [component, names] : unknown)
    for (const std::string& name : names) ++counts[module_of(name)];
  for (const std::string& name : taken->second) {
    const Tensor* const tensor = tensor_of(name);
    for (auto& [other, count] : counts) {
      if (tensor == nullptr || other == module) continue;
      const Tensor* const equal = tensor_of(other + std::string(split_name(name).second));
      if (equal != nullptr && began_equal(*tensor, *equal)) ++count;
    }
  }
  return std::ranges::all_of(counts, [&](const auto& each) { return each.second < taken->second.size(); });
}

std::vector<DoubtfulLayer> TwinLayers::doubtful(const std::set<std::string>& lost,
                                                const ElementsOf& elements_of) const {
  std::vector<DoubtfulLayer> doubtful;
  for (const std::string& layer : lost) {
    const auto twins = twins_.find(layer);
    if (!is_of_layer(layer) || twins == twins_.end()) continue;
    for (const std::string& twin : twins->second) {
      const auto taken = taken_by_.find(twin);
      if (taken == taken_by_.end()) continue;
      std::string other = equal_module(taken->second);
      if (!other.empty() || may_lack_weights(layer, taken->second, elements_of))
        doubtful.push_back({layer, twin, std::move(other)});
    }
  }
  return doubtful;
}

const Tensor* TwinLayers::tensor_of(const std::string& name) const {
  const auto tensor = tensors_.find(name);
  return tensor == tensors_.end() ? nullptr : tensor->second;
}

/// A module that has an equal parameter for each of these of which the file has a tensor; empty where none has.
std::string TwinLayers::equal_module(const std::set<std::string>& parameters) const {
  std::optional<std::set<std::string>> modules;
  for (const std::string& name : parameters) {
    const Tensor* const tensor = tensor_of(name);
    if (tensor == nullptr) continue;
    std::set<std::string> equal;
    for (const Tensor& each : body_.initializers)
      if (signature_.lists_parameter(each.name) && split_name(each.name).second == split_name(name).second &&
          module_of(each.name) != module_of(name) && began_equal(each, *tensor))
        equal.insert(module_of(each.name));
    if (modules) std::erase_if(equal, [&](const std::string& module) { return !modules->contains(module); });
    modules = std::move(equal);
  }
  if (!modules || modules->empty()) return {};
  const std::string& module = *modules->begin();
  return module.empty() ? "the module itself" : module.substr(0, module.size() - 1);
}

/// The exporter writes ones and zeros for the weights that a normalisation of instances lacks, which are merged with
/// those of another that began so.
bool TwinLayers::may_lack_weights(const std::string& lost, const std::set<std::string>& parameters,
                                  const ElementsOf& elements_of) const {
  if (!lost.starts_with("instance_norm")) return false;
  return std::ranges::all_of(parameters, [&](const std::string& name) {
    const Tensor* const tensor = tensor_of(name);
    const auto dtype = tensor == nullptr ? std::nullopt : dtype_of_onnx(tensor->onnx_type);
    const std::optional<std::string> elements = dtype ? elements_of(*tensor) : std::nullopt;
    return elements && is_uniform(*elements, static_cast<size_t>(ir::bytes_per_element(*dtype)));
  });
}

}  // namespace graphpipe::frontend
