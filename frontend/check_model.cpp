#include "frontend/check_model.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "frontend/parameters.h"

namespace graphpipe::frontend {
namespace {

constexpr size_t kMaxListLength = 65536;

struct Scope {
  const Scope* outer = nullptr;
  std::unordered_set<std::string_view> names;
  bool sees(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer)
      if (scope->names.count(name) > 0) return true;
    return false;
  }
};

class Checker {
 public:
  void graph(const GraphBody& body, const Scope* outer);
  Diagnostics take() { return std::move(problems_); }

 private:
  void node(const OnnxNode& node, Scope& scope, const std::unordered_set<std::string_view>& all_outputs);
  void attributes(const OnnxNode& node);
  void define(const std::string& name, const ModelText& by, Scope& scope);
  void check_namesakes(const GraphBody& body);
  void problem(const ModelText& origin, std::string message, std::string hint) {
    problems_.push_back({.code = Code::kBadModel,
                         .severity = Severity::kError,
                         .origin = origin,
                         .message = std::move(message),
                         .hint = std::move(hint)});
  }

  Diagnostics problems_;
};

void Checker::define(const std::string& name, const ModelText& by, Scope& scope) {
  const bool shadows = scope.outer != nullptr && scope.outer->sees(name);
  if (name.empty() || (scope.names.insert(name).second && !shadows)) return;
  problem(by, text("the name ", quoted(ModelText(name)), " is defined twice"),
          "wrap the model in one more module before exporting: a parameter at its root shares its name with an "
          "intermediate result");
}

void Checker::attributes(const OnnxNode& node) {
  std::unordered_set<std::string_view> names;
  for (const Attribute& attribute : node.attributes) {
    if (!names.insert(attribute.name).second)
      problem(node_label(node), text("has the attribute ", quoted(ModelText(attribute.name)), " twice"),
              "export the model again");
    if (attribute.ints.size() > kMaxListLength || attribute.floats.size() > kMaxListLength ||
        attribute.strings.size() > kMaxListLength)
      problem(node_label(node), text("has an attribute list of more than ", kMaxListLength, " elements"),
              "store long constants as tensors");
  }
}

void Checker::node(const OnnxNode& node, Scope& scope, const std::unordered_set<std::string_view>& all_outputs) {
  const ModelText label = node_label(node);
  for (const std::string& input : node.inputs) {
    if (input.empty() || scope.sees(input)) continue;
    if (all_outputs.count(input) > 0)
      problem(label, text("reads ", quoted(ModelText(input)), " before it is computed"),
              "sort the nodes topologically; if that is impossible the graph has a cycle");
    else problem(label, text("reads ", quoted(ModelText(input)), ", which nothing defines"), "export the model again");
  }
  attributes(node);
  for (const Attribute& attribute : node.attributes)
    for (const GraphBody& body : attribute.graph) graph(body, &scope);
  for (const std::string& output : node.outputs) define(output, label, scope);
}

/// A parameter at the root of a module may have the name of an input. Nodes of PyTorch's dynamo export read one for the
/// other then, or the parameter as "w_1", of which nothing says that it trains. An initializer that is the value of an
/// input where none is given has its shape.
void Checker::check_namesakes(const GraphBody& body) {
  const ExportSignature signature = read_signature(body.metadata);
  std::unordered_map<std::string_view, const Tensor*> tensors;
  for (const Tensor& tensor : body.initializers) tensors.emplace(tensor.name, &tensor);
  const auto is_same = [](const DeclaredDim& declared, int64_t dim) {
    return declared.size ? *declared.size == dim : declared.symbol.empty();
  };
  const auto is_lost = [&](const ValueInfo& input) {
    if (!signature.is_parameter.contains(input.name)) return false;  // other exporters name the sizes of weights
    const auto tensor = tensors.find(input.name);
    if (tensor != tensors.end())
      return input.has_shape && !std::ranges::equal(input.dims, tensor->second->dims, is_same);
    const std::string renamed = input.name + "_1";
    return signature.lists_parameter(input.name) && tensors.contains(renamed) &&
           !signature.is_parameter.contains(renamed);
  };
  for (const ValueInfo& input : body.inputs)
    if (is_lost(input))
      problem(
          ModelText(input.name),
          "the input has the name of a parameter or a buffer of the module, which the file mistakes for one another",
          "rename the argument of forward, or the parameter, and export again");
}

void Checker::graph(const GraphBody& body, const Scope* outer) {
  Scope scope{.outer = outer, .names = {}};
  if (body.has_sparse) problem({}, "has sparse initializers", "store them as dense tensors");
  // Up to IR version 3 every initializer is also listed as an input.
  for (const Tensor& tensor : body.initializers) define(tensor.name, ModelText(tensor.name), scope);
  std::unordered_set<std::string_view> inputs;
  for (const ValueInfo& input : body.inputs) {
    if (!inputs.insert(input.name).second)
      problem(ModelText(input.name), "the input is declared twice", "export the model again");
    if (input.name.empty()) problem({}, "an input has no name", "export the model again");
    scope.names.insert(input.name);
  }
  if (outer == nullptr) check_namesakes(body);
  std::unordered_set<std::string_view> all_outputs;
  for (const OnnxNode& item : body.nodes)
    for (const std::string& output : item.outputs) all_outputs.insert(output);
  for (const OnnxNode& item : body.nodes) node(item, scope, all_outputs);
  for (const ValueInfo& output : body.outputs)
    if (!scope.sees(output.name))
      problem(ModelText(output.name), "the output is computed by nothing", "export the model again");
}

}  // namespace

Status check_model(const Model& model) {
  Checker checker;
  checker.graph(model.graph, nullptr);
  Diagnostics problems = checker.take();
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::frontend
