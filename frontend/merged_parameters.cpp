#include "frontend/merged_parameters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "frontend/exported_call.h"
#include "frontend/lost_by_export.h"

namespace graphpipe::frontend {
namespace {

/// A call of the module, of which the file may have several nodes.
struct Call {
  std::vector<std::string> parameters;
  std::set<std::string> tensors;  // that its nodes read
  /// The parameter that is its bias.
  std::string bias;
};

/// Which argument of a call is the bias of its product.
std::optional<size_t> bias_argument(std::string_view target) {
  if (target.starts_with("aten.addmm")) return 0;
  const bool is_product = target.starts_with("aten.linear") || target.starts_with("aten.conv");
  return is_product ? std::optional<size_t>(2) : std::nullopt;
}

class Finder {
 public:
  Finder(const GraphBody& body, const ExportSignature& signature) : signature_(signature) {
    for (const Tensor& tensor : body.initializers) {
      const bool is_scalar = std::ranges::all_of(tensor.dims, [](int64_t dim) { return dim == 1; });
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (!dtype || !ir::is_floating(*dtype) || is_scalar) continue;
      held_.insert(tensor.name);
      // Only weights of products lose their names, transposed.
      if (is_anonymous(tensor.name) && tensor.dims.size() > 1) nameless_.insert(tensor.name);
    }
    for (const OnnxNode& node : body.nodes) read(node);
  }

  std::vector<std::string> run() {
    for (const std::string* text : order_) {
      const Call& call = calls_.at(*text);
      if (reads_of_another(call) || shares_anonymous(call))
        for (const std::string& name : call.parameters) report(name);
      else if (!call.bias.empty() && call.tensors.size() < call.parameters.size()) report(call.bias);
    }
    return std::move(found_);
  }

 private:
  /// The parameter that an argument such as "%p_fc_weight" stands for, or nothing.
  std::string parameter_of(std::string_view argument) const {
    if (!argument.starts_with('%')) return {};
    const auto named = signature_.parameter_of_input.find(std::string(argument.substr(1)));
    return named == signature_.parameter_of_input.end() ? std::string() : named->second;
  }

  void read(const OnnxNode& node) {
    const std::optional<ExportedCall> exported = parse_exported_call(node.exported_from);
    if (!exported) return;
    const auto [at, is_new] = calls_.try_emplace(node.exported_from);
    Call& call = at->second;
    if (is_new) {
      order_.push_back(&at->first);
      for (const std::string& argument : exported->arguments)
        if (std::string name = parameter_of(argument); !name.empty()) call.parameters.push_back(std::move(name));
      if (const auto bias = bias_argument(exported->target)) call.bias = parameter_of(exported->argument(*bias));
    }
    // One that was folded into the product before it is reported with its statistics (report_missing()).
    if (exported->target.find("batch_norm") != exported->target.npos && node.op != "BatchNormalization") return;
    for (const std::string& input : node.inputs) {
      if (!held_.contains(input)) continue;
      call.tensors.insert(input);
      readers_[input].insert(&call);
    }
  }

  bool takes(const Call& call, const std::string& name) const {
    return std::ranges::find(call.parameters, name) != call.parameters.end();
  }
  bool lacks(const Call& call) const {
    return std::ranges::any_of(call.parameters, [&](const std::string& name) { return !held_.contains(name); });
  }

  /// A tensor with the name of a parameter that the call does not take.
  bool reads_of_another(const Call& call) const {
    return !call.parameters.empty() && std::ranges::any_of(call.tensors, [&](const std::string& name) {
      return signature_.is_parameter.contains(name) && signature_.is_parameter.at(name) && !takes(call, name);
    });
  }

  /// A tensor without a name of the module's that calls read which have no parameter in common.
  bool shares_anonymous(const Call& call) const {
    if (!lacks(call)) return false;
    const auto has_none_of_it = [&](const Call* other) {
      return lacks(*other) &&
             std::ranges::none_of(call.parameters, [&](const auto& name) { return takes(*other, name); });
    };
    return std::ranges::any_of(call.tensors, [&](const std::string& name) {
      return nameless_.contains(name) && std::ranges::any_of(readers_.at(name), has_none_of_it);
    });
  }

  void report(const std::string& name) {
    if (!held_.contains(name) && reported_.insert(name).second) found_.push_back(name);
  }

  const ExportSignature& signature_;
  std::set<std::string> held_, nameless_;  // initializers that may be parameters
  std::map<std::string, Call> calls_;      // by the text of the call, which names its result
  std::vector<const std::string*> order_;
  std::map<std::string, std::set<const Call*>> readers_;
  std::set<std::string> reported_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> merged_parameters(const GraphBody& body, const ExportSignature& signature) {
  if (signature.parameter_of_input.empty()) return {};
  return Finder(body, signature).run();
}

std::vector<std::string> merged_copies(const GraphBody& body) {
  constexpr std::string_view kOfExporter = "onnx::";
  std::set<std::string_view> held;
  for (const Tensor& tensor : body.initializers)
    if (tensor.name.starts_with(kOfExporter) && tensor.dims.size() > 1) held.insert(tensor.name);
  std::vector<std::string> merged;
  for (const OnnxNode& node : body.nodes)
    if (node.op == "Identity" && node.inputs.size() == 1 && node.outputs.size() == 1 && held.contains(node.inputs[0]) &&
        node.outputs[0].starts_with(kOfExporter) && std::ranges::find(merged, node.inputs[0]) == merged.end())
      merged.push_back(node.inputs[0]);
  return merged;
}

}  // namespace graphpipe::frontend
