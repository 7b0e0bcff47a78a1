#include "frontend/restore_recurrent.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/value_names.h"
#include "wire/element_type.h"

namespace graphpipe::frontend {
namespace {

using Counts = std::vector<int64_t>;

constexpr size_t kInputWeights = 1, kRecurrentWeights = 2, kBiases = 3;  // operands of the node

/// The gates in ONNX's order: where each stands in PyTorch's.
std::vector<size_t> gates_of_op(std::string_view op) {
  if (op == "LSTM") return {0, 3, 1, 2};  // i, o, f, c of i, f, c, o
  if (op == "GRU") return {1, 0, 2};      // z, r, h of r, z, h
  return {};
}

/// The call of one or several layers of an LSTM or a GRU: their parameters, in the order of layers and directions.
struct RecurrentCall {
  std::vector<std::string> parameters;
  size_t layers = 0, directions = 0, each = 0;  // parameters of one layer in one direction
};

std::optional<RecurrentCall> recurrent_call(const ExportedCall& call, const ExportSignature& signature) {
  if (call.target != "aten.lstm.input" && call.target != "aten.gru.input") return std::nullopt;
  RecurrentCall result{.directions = call.argument(7) == "True" ? 2U : 1U,
                       .each = call.argument(3) == "True" ? 4U : 2U};
  int64_t layers = 0;
  std::string_view list = call.argument(2);
  if (!list.starts_with('[') || !list.ends_with(']') || !read_number(call.argument(4), layers) || layers < 1)
    return std::nullopt;
  list = list.substr(1, list.size() - 2);
  while (!list.empty()) {
    const size_t end = std::min(list.find(", "), list.size());
    result.parameters.push_back(signature.tensor_of(list.substr(0, end)));
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  result.layers = static_cast<size_t>(layers);
  // Those of a projection come on top.
  if (result.parameters.size() / result.directions / result.each != result.layers ||
      result.parameters.size() % (result.directions * result.each) != 0)
    return std::nullopt;
  return result;
}

/// The parameters of which an operand of the layer is joined.
std::vector<std::string> parameters_in(const RecurrentCall& call, size_t layer, size_t operand) {
  std::vector<std::string> names;
  for (size_t d = 0; d < call.directions; ++d) {
    const auto first = call.parameters.begin() + static_cast<std::ptrdiff_t>((layer * call.directions + d) * call.each);
    if (operand != kBiases) names.push_back(first[static_cast<std::ptrdiff_t>(operand - kInputWeights)]);
    else if (call.each == 4) names.insert(names.end(), {first[2], first[3]});
  }
  return names;
}

/// An operand that a node reads as these parameters, joined with their gates in ONNX's order.
struct PackedOperand {
  size_t node = 0, input = 0;
  std::vector<std::string> parameters;
  std::vector<size_t> gates;
};

class RecurrentRestorer {
 public:
  RecurrentRestorer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                    const ElementsOf& elements_of, Restoration& restored)
      : body_(body),
        signature_(signature),
        rules_(rules),
        elements_of_(elements_of),
        restored_(restored),
        names_(value_names(body)),
        bound_(bound_names(body)) {
    for (const Tensor& tensor : body.initializers) held_.emplace(tensor.name, &tensor);
    for (const OnnxNode& node : body.nodes)
      for (const std::string& input : node.inputs) ++reads_[input];
  }

  void run() {
    collect();
    for (const auto& [name, operands] : packed_) restore(*held_.at(name), operands);
    put_in_front(body_, restored_, std::move(nodes_), std::move(added_), gone_);
  }

 private:
  /// The layers of a call are nodes, one behind the other.
  void collect() {
    std::map<std::string_view, std::vector<size_t>> nodes;  // by the text of the call
    for (size_t n = 0; n < body_.nodes.size(); ++n)
      if (const OnnxNode& node = body_.nodes[n]; !node.exported_from.empty() && !gates_of_op(node.op).empty())
        nodes[node.exported_from].push_back(n);
    for (const auto& [text, layers] : nodes) {
      const std::optional<ExportedCall> exported = parse_exported_call(text);
      const std::optional<RecurrentCall> call = exported ? recurrent_call(*exported, signature_) : std::nullopt;
      if (!call || call->layers != layers.size()) continue;
      for (size_t layer = 0; layer < layers.size(); ++layer) collect_layer(*call, layer, layers[layer]);
    }
  }

  void collect_layer(const RecurrentCall& call, size_t layer, size_t n) {
    const OnnxNode& node = body_.nodes[n];
    for (const size_t input : {kInputWeights, kRecurrentWeights, kBiases}) {
      if (input >= node.inputs.size() || !is_packed(node.inputs[input])) continue;
      std::vector<std::string> parameters = parameters_in(call, layer, input);
      if (!parameters.empty())
        packed_[node.inputs[input]].push_back({n, input, std::move(parameters), gates_of_op(node.op)});
    }
  }

  /// Whether the optimiser has computed the tensor from parameters.
  bool is_packed(const std::string& name) const {
    const auto tensor = held_.find(name);
    const auto note = body_.folded_from.find(name);
    if (tensor == held_.end() || note == body_.folded_from.end() || !is_anonymous(name)) return false;
    const auto dtype = dtype_of_onnx(tensor->second->onnx_type);
    return dtype && ir::is_floating(*dtype) && wire::find_element_type(*dtype)->packed == 1 &&
           std::ranges::any_of(parse_names(note->second),
                               [&](const std::string& from) { return signature_.lists_parameter(from); });
  }

  void restore(const Tensor& tensor, const std::vector<PackedOperand>& operands) {
    if (bound_.contains(tensor.name) || reads_.at(tensor.name) != operands.size()) return;
    const std::optional<std::string> elements = elements_of_(tensor);
    if (!elements || elements->empty()) return;
    std::map<std::string, Tensor> parameters;
    for (const PackedOperand& operand : operands)
      if (!take_apart(tensor, *elements, operand, parameters)) return;
    std::map<std::vector<std::string>, std::string> values;
    for (const PackedOperand& operand : operands) {
      std::string& value = values[operand.parameters];
      if (value.empty()) value = join(tensor, operand);
      body_.nodes[operand.node].inputs[operand.input] = value;
    }
    for (auto& [name, parameter] : parameters) {
      names_.insert(name);
      restored_.names.push_back(name);
      made_.emplace(name, parameter);
      added_.push_back(std::move(parameter));
    }
    gone_.insert(tensor.name);
  }

  /// Adds the operand's parameters that the file does not have; false where one cannot be what the operand says.
  bool take_apart(const Tensor& tensor, const std::string& elements, const PackedOperand& operand,
                  std::map<std::string, Tensor>& parameters) const {
    const size_t count = operand.parameters.size(), gates = operand.gates.size();
    const auto rows = static_cast<size_t>(tensor.dims.size() < 2 ? 0 : tensor.dims[0] * tensor.dims[1]);
    const size_t rank = operand.input == kBiases ? 2 : 3;
    if (tensor.dims.size() != rank || rows == 0 || rows % (count * gates) != 0) return false;
    const size_t bytes = elements.size() / count, of_gate = bytes / gates;
    for (size_t i = 0; i < count; ++i) {
      Tensor parameter{.name = operand.parameters[i], .onnx_type = tensor.onnx_type, .dims = {}};
      parameter.dims.push_back(static_cast<int64_t>(rows / count));
      if (rank == 3) parameter.dims.push_back(tensor.dims[2]);
      parameter.data.bytes.resize(bytes);
      for (size_t gate = 0; gate < gates; ++gate)
        parameter.data.bytes.replace(operand.gates[gate] * of_gate, of_gate, elements, i * bytes + gate * of_gate,
                                     of_gate);
      if (!fits(parameter, parameters)) return false;
    }
    return true;
  }

  bool fits(const Tensor& parameter, std::map<std::string, Tensor>& parameters) const {
    const auto is_same = [&](const Tensor& there) {
      return there.onnx_type == parameter.onnx_type && there.dims == parameter.dims &&
             there.layout == Tensor::Layout::kDense && elements_of_(there) == parameter.data.bytes;
    };
    if (!signature_.lists_parameter(parameter.name) || rules_.tied(parameter.name).value_or(false)) return false;
    if (const auto there = held_.find(parameter.name); there != held_.end()) return is_same(*there->second);
    if (const auto there = made_.find(parameter.name); there != made_.end()) return is_same(there->second);
    if (names_.contains(parameter.name)) return false;
    const auto [at, is_new] = parameters.emplace(parameter.name, parameter);
    return is_new || is_same(at->second);
  }

  /// Nodes that compute the operand from its parameters.
  std::string join(const Tensor& tensor, const PackedOperand& operand) {
    const size_t gates = operand.gates.size();
    const int64_t rows = tensor.dims[0] * tensor.dims[1] / std::ssize(operand.parameters) / static_cast<int64_t>(gates);
    const std::string sizes = add_numbers(tensor.name + "/gates", Counts(gates, rows));
    OnnxNode concat{.op = "Concat"};
    for (const std::string& parameter : operand.parameters) {
      OnnxNode split{.op = "Split", .inputs = {parameter, sizes}};
      for (size_t gate = 0; gate < gates; ++gate) split.outputs.push_back(unused(text(parameter, "/", gate)));
      split.name = split.outputs[0];
      for (const size_t gate : operand.gates) concat.inputs.push_back(split.outputs[gate]);
      nodes_.push_back(std::move(split));
    }
    Attribute& axis = concat.attributes.emplace_back();
    axis.name = "axis", axis.kind = Attribute::Kind::kInt;
    concat.outputs = {unused(operand.parameters[0] + "/joined")};
    concat.name = concat.outputs[0];
    OnnxNode reshape{.op = "Reshape",
                     .inputs = {concat.outputs[0], add_numbers(tensor.name + "/dims", tensor.dims)},
                     .outputs = {unused(operand.parameters[0] + "/packed")}};
    reshape.name = reshape.outputs[0];
    std::string value = reshape.outputs[0];
    nodes_.push_back(std::move(concat));
    nodes_.push_back(std::move(reshape));
    return value;
  }

  std::string add_numbers(std::string name, const Counts& numbers) {
    return added_.emplace_back(int64_tensor(unused(std::move(name)), numbers)).name;
  }

  std::string unused(std::string name) { return unused_name(names_, std::move(name)); }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const ElementsOf& elements_of_;
  Restoration& restored_;
  std::set<std::string> names_;  // of all values and tensors
  std::set<std::string> bound_;  // outputs, and what bodies of nodes read
  std::map<std::string, const Tensor*> held_;
  std::map<std::string, size_t> reads_;
  std::map<std::string, std::vector<PackedOperand>> packed_;  // by the tensor that is read
  std::map<std::string, Tensor> made_;                        // parameters that were added
  std::vector<Tensor> added_;
  std::vector<OnnxNode> nodes_;  // in front of the others: they read tensors alone
  std::set<std::string> gone_;
};

}  // namespace

void restore_recurrent(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                       const ElementsOf& elements_of, Restoration& restored) {
  RecurrentRestorer(body, signature, rules, elements_of, restored).run();
}

}  // namespace graphpipe::frontend
