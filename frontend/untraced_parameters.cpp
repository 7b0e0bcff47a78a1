#include "frontend/untraced_parameters.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>

#include "frontend/exported_call.h"
#include "frontend/lost_by_export.h"

namespace graphpipe::frontend {
namespace {

/// How torch.export begins the names of values that layers with parameters compute.
constexpr std::array<std::string_view, 8> kLayers = {"addmm",      "conv",   "embedding", "group_norm",
                                                     "layer_norm", "linear", "prelu",     "rms_norm"};

bool is_of_layer(std::string_view value) {
  return std::ranges::any_of(kLayers, [&](std::string_view layer) { return value.starts_with(layer); });
}

/// "linear_1.weight" is an entry of the module's state; "linear_1" is a value of its program.
bool names_value(std::string_view name) { return name.find_first_of("./:") == name.npos; }

std::string_view last_component(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// An initializer that the exporter's optimiser has computed: it has the name of a value of the module's program.
bool is_computed(const Tensor& tensor, const ExportSignature& signature) {
  const auto dtype = dtype_of_onnx(tensor.onnx_type);
  return dtype && ir::is_floating(*dtype) && names_value(tensor.name) && !is_anonymous(tensor.name) &&
         !signature.is_parameter.contains(tensor.name);
}

bool is_look_up(const Tensor& tensor, const ExportSignature& signature) {
  return is_computed(tensor, signature) && tensor.name.starts_with("embedding") && tensor.dims.size() > 1;
}

class Tracer {
 public:
  Tracer(const GraphBody& body, const ExportSignature& signature, const ParameterRules& rules)
      : body_(body), signature_(signature), rules_(rules) {
    for (const Tensor& tensor : body.initializers) values_.insert(tensor.name);
    for (const OnnxNode& node : body.nodes) {
      values_.insert(node.outputs.begin(), node.outputs.end());
      if (const std::optional<ExportedCall> call = parse_exported_call(node.exported_from)) read(*call);
    }
  }

  UntracedParameters run() {
    std::map<std::string_view, std::vector<std::string>> names;  // by component: "weight"
    std::map<std::string_view, int64_t> unexplained;             // what ties or look-ups have to explain
    for (const auto& [name, is_parameter] : signature_.is_parameter) {
      if (!is_parameter || values_.contains(name) || readers_.contains(name)) continue;
      ++unexplained[last_component(name)];
      if (!rules_.tied(name).value_or(false)) names[last_component(name)].push_back(name);
    }
    for (const auto& [name, calls] : readers_) unexplained[last_component(name)] -= std::ssize(calls) - 1;
    for (const Tensor& tensor : body_.initializers)
      if (is_look_up(tensor, signature_)) --unexplained["weight"];
    UntracedParameters untraced;
    for (auto& [component, of_component] : names) {
      const auto left = static_cast<size_t>(std::max<int64_t>(0, unexplained[component]));
      if (left == 0) continue;
      untraced.unexplained += std::min(left, of_component.size());
      std::ranges::move(of_component, std::back_inserter(untraced.names));
    }
    if (untraced.unexplained > 0) untraced.evidence = evidence();
    return untraced;
  }

 private:
  void read(const ExportedCall& call) {
    results_.insert(call.result);
    for (const std::string& name : call.values) {
      const std::string listed = signature_.tensor_of(name);
      if (listed.empty()) read_.insert(name.substr(1));
      else readers_[listed].insert(call.result);
    }
  }

  /// A layer whose node has gone, though the result is still read; or values that were computed beforehand.
  std::string evidence() const {
    for (const std::string& name : read_)
      if (is_of_layer(name) && !values_.contains(name) && !results_.contains(name))
        return text("the exporter's optimiser has merged the layer of ", quoted(ModelText(name)), " with another");
    const bool lacks_buffers = std::ranges::any_of(
        signature_.is_parameter, [&](const auto& listed) { return !listed.second && !values_.contains(listed.first); });
    for (const Tensor& tensor : body_.initializers) {
      if (!is_computed(tensor, signature_) || is_look_up(tensor, signature_)) continue;
      // Tables of rotary positions are computed from buffers.
      if (!lacks_buffers || tensor.dims.empty() || is_of_layer(tensor.name))
        return text("the exporter's optimiser has computed ", quoted(ModelText(tensor.name)), " beforehand");
    }
    return {};
  }

  const GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  std::set<std::string> values_, results_, read_;         // of the file; of its calls; which those take
  std::map<std::string, std::set<std::string>> readers_;  // of each tensor: the calls that take it
};

}  // namespace

std::set<std::string> folded_look_ups(const GraphBody& body, const ExportSignature& signature) {
  std::set<std::string> names;
  if (signature.tensor_of_input.empty()) return names;
  for (const Tensor& tensor : body.initializers)
    if (is_look_up(tensor, signature)) names.insert(tensor.name);
  return names;
}

UntracedParameters untraced_parameters(const GraphBody& body, const ExportSignature& signature,
                                       const ParameterRules& rules, bool has_restored) {
  const bool is_optimised = has_restored || std::ranges::any_of(body.initializers, [&](const Tensor& tensor) {
                              return is_anonymous(tensor.name) || is_computed(tensor, signature);
                            });
  if (signature.tensor_of_input.empty() || !is_optimised) return {};
  return Tracer(body, signature, rules).run();
}

}  // namespace graphpipe::frontend
