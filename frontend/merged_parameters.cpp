#include "frontend/merged_parameters.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/lost_by_export.h"

namespace graphpipe::frontend {
namespace {

/// A call of the module, of which the file may have several nodes.
struct Call {
  std::set<std::string> parameters, tensors;  // that it takes, and that its nodes read
  std::string bias;                           // the parameter that is its bias
  bool adds_bias = false;
  std::vector<std::string> missing;  // of its parameters: those without a tensor of their name
};

bool is_recurrent(std::string_view target) {
  return target.starts_with("aten.lstm") || target.starts_with("aten.gru") || target.starts_with("aten.rnn");
}

class Finder {
 public:
  Finder(const GraphBody& body, const ExportSignature& signature) : signature_(signature) {
    for (const Tensor& tensor : body.initializers) {
      present_.insert(tensor.name);
      const bool is_scalar = std::ranges::all_of(tensor.dims, [](int64_t dim) { return dim == 1; });
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (dtype && ir::is_floating(*dtype) && !is_scalar) held_.insert(tensor.name);
    }
    for (const OnnxNode& node : body.nodes) read(node);
    for (Call* call : order_)
      std::ranges::copy_if(call->parameters, std::back_inserter(call->missing),
                           [&](const std::string& name) { return !present_.contains(name); });
    find_shared();
  }

  std::vector<std::string> run() {
    for (const Call* call : order_) examine(*call);
    return std::move(found_);
  }

 private:
  std::string parameter_of(std::string_view argument) const {
    std::string name = signature_.tensor_of(argument);
    return signature_.lists_parameter(name) ? name : std::string();
  }

  void read(const OnnxNode& node) {
    const std::optional<ExportedCall> exported = parse_exported_call(node.exported_from);
    if (!exported) return;
    // One that was folded into the product before it is reported with its statistics (report_missing()). The weights of
    // recurrent layers are packed, which trains them as well.
    if (exported->target.find("batch_norm") != exported->target.npos && node.op != "BatchNormalization") return;
    if (is_recurrent(exported->target)) return;
    const auto [at, is_new] = calls_.try_emplace(node.exported_from);
    Call& call = at->second;
    if (is_new) {
      order_.push_back(&call);
      for (const std::string& value : exported->values)
        if (std::string name = parameter_of(value); !name.empty()) call.parameters.insert(std::move(name));
      if (const auto bias = bias_argument(exported->target)) call.bias = parameter_of(exported->argument(*bias));
    }
    call.adds_bias = call.adds_bias || node.op == "Add" || (is_product(node) && node.inputs.size() > 2);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string& input = node.inputs[i];
      if (!held_.contains(input)) continue;
      call.tensors.insert(input);
      // The optimiser transposes the weights of products, which then have names of its own.
      if (i == 1 && is_product(node) && is_anonymous(input)) readers_[input].insert(&call);
    }
  }

  /// Transposed weights whose calls have no parameter in common are of several.
  void find_shared() {
    for (const auto& [name, readers] : readers_) {
      std::optional<std::set<std::string>> common;
      for (const Call* reader : readers) {
        if (reader->missing.empty()) continue;
        if (!common) common = reader->parameters;
        else std::erase_if(*common, [&](const std::string& each) { return !reader->parameters.contains(each); });
      }
      if (common && common->empty()) shared_.insert(name);
    }
  }

  void examine(const Call& call) {
    // Weights without a name stand for one parameter each.
    const auto own = static_cast<size_t>(std::ranges::count_if(call.tensors, [&](const std::string& tensor) {
      return readers_.contains(tensor) && !shared_.contains(tensor);
    }));
    const bool lacks_bias = !call.bias.empty() && !present_.contains(call.bias);
    if (call.missing.size() > own) {
      const bool lacks_only_bias = lacks_bias && call.missing.size() == own + 1;
      for (const std::string& name : call.missing)
        if (!lacks_only_bias || name == call.bias) report(name);
    } else if (lacks_bias && !call.adds_bias) {
      report(call.bias);
    }
  }

  void report(const std::string& name) {
    if (reported_.insert(name).second) found_.push_back(name);
  }

  const ExportSignature& signature_;
  std::set<std::string> present_, held_;  // initializers, and those that may be parameters of layers
  std::map<std::string, Call> calls_;     // by the text of the call, which names its result
  std::vector<Call*> order_;
  std::map<std::string, std::set<const Call*>> readers_;  // of weights without a name of the module's
  std::set<std::string> shared_, reported_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> merged_parameters(const GraphBody& body, const ExportSignature& signature) {
  if (signature.tensor_of_input.empty()) return {};
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
        node.outputs[0].starts_with(kOfExporter)) {
      merged.push_back(node.inputs[0]);
      held.erase(node.inputs[0]);
    }
  return merged;
}

}  // namespace graphpipe::frontend
