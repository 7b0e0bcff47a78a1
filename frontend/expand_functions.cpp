#include "frontend/expand_functions.h"

#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/shape_inference/implementation.h>

#include <functional>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "frontend/libonnx_exception.h"
#include "frontend/libonnx_steps.h"
#include "frontend/node_context.h"
#include "frontend/older_opsets.h"

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

/// No function body of a schema has more nodes than this.
constexpr int64_t kLargestBody = 64;

void spell_out_defaults(pb::NodeProto& node, const pb::OpSchema& schema) {
  std::vector<pb::AttributeProto> defaults;
  for (const auto& [name, attribute] : schema.attributes()) {
    if (attribute.default_value.type() == pb::AttributeProto::UNDEFINED) continue;
    defaults.push_back(attribute.default_value);
    defaults.back().set_name(name);
  }
  spell_out(node, defaults);
}

/// The schema of a node that has no entry but a function body; null for all others.
const pb::OpSchema* schema_with_body(const pb::ModelProto& model, const pb::NodeProto& node) {
  const bool is_main = node.domain().empty() || node.domain() == "ai.onnx";
  if (!is_main && node.domain() != "ai.onnx.preview") return nullptr;
  const std::string domain = is_main ? "" : node.domain();
  if (is_main &&
      is_supported({.name = {}, .op = node.op_type(), .domain = {}, .inputs = {}, .outputs = {}, .attributes = {}}))
    return nullptr;
  int64_t version = is_main ? main_opset(model) : 1;
  for (const auto& import : model.opset_import())
    if (import.domain() == domain) version = import.version();
  const auto* schema = pb::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version), domain);
  const bool has_body = schema != nullptr && (schema->HasFunction() || schema->HasContextDependentFunction());
  return has_body ? schema : nullptr;
}

/// The operators to expand, by domain and type. Empty if there are none or too many.
pb::inliner::FunctionIdVector operators_to_expand(pb::ModelProto& model, int64_t limit) {
  std::set<std::pair<std::string, std::string>> names;
  int64_t nodes = 0;
  for_each_node(*model.mutable_graph(), [&](const pb::NodeProto& node) {
    ++nodes;
    const pb::OpSchema* schema = schema_with_body(model, node);
    if (schema == nullptr) return;
    names.emplace(node.domain(), node.op_type());
    names.emplace(schema->domain(), node.op_type());  // within bodies, the standard operators have no domain
    nodes += kLargestBody;
  });
  if (nodes > limit) return {};
  return {names.begin(), names.end()};
}

/// Visits all names of values in the graph and its bodies, several times each.
void for_each_value_name(pb::GraphProto& graph, const std::function<void(std::string&)>& visit);

void for_each_value_name(pb::NodeProto& node, const std::function<void(std::string&)>& visit) {
  for (std::string& name : *node.mutable_input()) visit(name);
  for (std::string& name : *node.mutable_output()) visit(name);
  for (pb::AttributeProto& attribute : *node.mutable_attribute())
    if (attribute.has_g()) for_each_value_name(*attribute.mutable_g(), visit);
}

void for_each_value_name(pb::GraphProto& graph, const std::function<void(std::string&)>& visit) {
  for (pb::ValueInfoProto& input : *graph.mutable_input()) visit(*input.mutable_name());
  for (pb::TensorProto& tensor : *graph.mutable_initializer()) visit(*tensor.mutable_name());
  for (pb::ValueInfoProto& info : *graph.mutable_value_info()) visit(*info.mutable_name());
  for (pb::ValueInfoProto& output : *graph.mutable_output()) visit(*output.mutable_name());
  for (pb::NodeProto& node : *graph.mutable_node()) for_each_value_name(node, visit);
}

/// The types of a graph's values by name, and those of the graphs around it.
class Types {
 public:
  Types(const pb::GraphProto& graph, const Types* around) : around_(around) {
    for (const auto& tensor : graph.initializer()) {
      auto& type = *types_[tensor.name()].mutable_tensor_type();
      type.set_elem_type(tensor.data_type());
      for (const int64_t dim : tensor.dims()) type.mutable_shape()->add_dim()->set_dim_value(dim);
    }
    for (const auto* infos : {&graph.value_info(), &graph.input(), &graph.output()})
      for (const auto& info : *infos)
        if (info.has_type()) types_.try_emplace(info.name(), info.type());
  }

  /// Null if it is not known.
  const pb::TypeProto* find(const std::string& name) const {
    if (const auto found = types_.find(name); found != types_.end()) return &found->second;
    return around_ == nullptr ? nullptr : around_->find(name);
  }

 private:
  const Types* around_;
  std::unordered_map<std::string, pb::TypeProto> types_;
};

class Expansion {
 public:
  Expansion(pb::ModelProto& model, pb::inliner::FunctionIdVector operators)
      : model_(&model), operators_(pb::inliner::FunctionIdSet::Create(std::move(operators))) {
    for_each_value_name(*model.mutable_graph(), [&](const std::string& name) { taken_.insert(name); });
  }

  void expand(pb::GraphProto& graph, const Types* around) {
    const Types types(graph, around);
    google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (pb::NodeProto& node : nodes) {
      for (pb::AttributeProto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) expand(*attribute.mutable_g(), &types);
      const pb::OpSchema* schema = schema_with_body(*model_, node);
      if (schema == nullptr || !append_body(node, *schema, types, graph)) graph.add_node()->Swap(&node);
    }
  }

 private:
  /// False, and nothing is appended, if the library cannot build the body.
  bool append_body(const pb::NodeProto& node, const pb::OpSchema& schema, const Types& types, pb::GraphProto& graph) {
    pb::ModelProto call = call_alone(node, schema, types);
    if (exception_of([&] { pb::inliner::InlineSelectedFunctions(call, *operators_, nullptr); })) return false;
    rename(node, *call.mutable_graph());
    for (pb::NodeProto& inner : *call.mutable_graph()->mutable_node()) graph.add_node()->Swap(&inner);
    return true;
  }

  /// A model that has nothing but this node. The inliner infers the types of a whole model for each node that it
  /// expands: with 415 such nodes that took longer than an import may.
  pb::ModelProto call_alone(const pb::NodeProto& node, const pb::OpSchema& schema, const Types& types) const {
    pb::ModelProto call;
    call.set_ir_version(model_->ir_version());
    *call.mutable_opset_import() = model_->opset_import();
    pb::GraphProto& graph = *call.mutable_graph();
    graph.set_name("call");
    *graph.add_node() = node;
    spell_out_defaults(*graph.mutable_node(0), schema);
    std::set<std::string_view> declared;
    const auto declare = [&](const std::string& name, pb::ValueInfoProto* (pb::GraphProto::*add)()) {
      const pb::TypeProto* type = types.find(name);
      if (type == nullptr || name.empty() || !declared.insert(name).second) return;
      pb::ValueInfoProto& info = *(graph.*add)();
      info.set_name(name);
      *info.mutable_type() = *type;
    };
    for (const std::string& input : node.input()) declare(input, &pb::GraphProto::add_input);
    for (const std::string& output : node.output()) declare(output, &pb::GraphProto::add_output);
    // The inliner asks for the type of every operand, even one that a call omits with an empty name.
    graph.add_value_info()->mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::FLOAT);
    return call;
  }

  /// Gives the names that came with the body a form that the model does not have yet.
  void rename(const pb::NodeProto& node, pb::GraphProto& body) {
    std::unordered_map<std::string, std::string> names;
    pb::NodeProto outside = node;
    for_each_value_name(outside, [&](const std::string& name) { names.emplace(name, name); });
    names.emplace("", "");
    const std::string front = front_of(node);
    const auto give_name = [&](std::string& name) {
      const auto [given, is_new] = names.try_emplace(name, front + name);
      if (is_new)
        while (!taken_.insert(given->second).second) given->second += "_";
      name = given->second;
    };
    for (pb::NodeProto& inner : *body.mutable_node()) for_each_value_name(inner, give_name);
  }

  /// The name of the call's first output, or its beginning, with a number where bodies of other calls have that.
  std::string front_of(const pb::NodeProto& node) {
    constexpr size_t kLongest = 100;
    const std::string& whole = node.output_size() > 0 ? node.output(0) : node.name();
    const std::string name = whole.substr(0, whole_characters(whole, kLongest));
    const int64_t number = ++calls_[name];
    return number == 1 ? name + "/" : text(name, "/", number, "/");
  }

  /// The most bytes of a name, `longest` or a few less, that end with a character of UTF-8.
  static size_t whole_characters(std::string_view name, size_t longest) {
    constexpr size_t kLongestCharacter = 4;
    if (name.size() <= longest) return name.size();
    for (size_t end = longest; end + kLongestCharacter > longest; --end)
      if ((static_cast<unsigned char>(name[end]) & 0xC0) != 0x80) return end;  // a character begins there
    return longest;                                                            // no UTF-8
  }

  pb::ModelProto* model_;
  std::unique_ptr<pb::inliner::FunctionIdSet> operators_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int64_t> calls_;  // by the beginning of their first outputs' names
};

}  // namespace

std::optional<std::string> infer_shapes(pb::ModelProto& model) {
  const pb::ShapeInferenceOptions options{/*check_type=*/false, /*strict_mode=*/0, /*data_prop=*/false};
  // The library has no inference for GroupNormalization: nothing after one would have a type, and an Attention there
  // could not be expanded. InstanceNormalization has the same rule: the output has the type of the first input.
  std::vector<pb::NodeProto*> groups;
  for_each_node(*model.mutable_graph(), [&](pb::NodeProto& node) {
    if (node.op_type() == "GroupNormalization" && node.domain().empty()) groups.push_back(&node);
  });
  for (pb::NodeProto* node : groups) node->set_op_type("InstanceNormalization");
  const auto thrown =
      exception_of([&] { pb::shape_inference::InferShapes(model, pb::OpSchemaRegistry::Instance(), options); });
  for (pb::NodeProto* node : groups) node->set_op_type("GroupNormalization");
  return thrown;
}

void spell_out(pb::NodeProto& call, const std::vector<pb::AttributeProto>& defaults) {
  std::set<std::string> given;
  for (const pb::AttributeProto& attribute : call.attribute()) given.insert(attribute.name());
  for (const pb::AttributeProto& attribute : defaults)
    if (!given.contains(attribute.name())) *call.add_attribute() = attribute;
}

void expand_schema_functions(pb::ModelProto& model, const Limits& limits) {
  pb::inliner::FunctionIdVector operators = operators_to_expand(model, limits.expanded_nodes);
  if (operators.empty()) return;
  infer_shapes(model);  // the converter has made values without types; what it throws was noted before
  Expansion(model, std::move(operators)).expand(*model.mutable_graph(), nullptr);
}

}  // namespace graphpipe::frontend
