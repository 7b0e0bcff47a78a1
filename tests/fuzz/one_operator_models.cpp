#include "tests/fuzz/one_operator_models.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

namespace graphpipe::tests {
namespace {

namespace pb = graphpipe_onnx;

constexpr std::array kTypes = {pb::TensorProto::FLOAT,  pb::TensorProto::INT64, pb::TensorProto::BOOL,
                               pb::TensorProto::DOUBLE, pb::TensorProto::INT8,  pb::TensorProto::FLOAT16,
                               pb::TensorProto::INT32,  pb::TensorProto::UINT8, pb::TensorProto::STRING};

void set_type(pb::TypeProto& type, int element, const std::vector<int64_t>& dims, bool with_batch) {
  auto& tensor = *type.mutable_tensor_type();
  tensor.set_elem_type(element);
  auto& shape = *tensor.mutable_shape();
  if (with_batch) shape.add_dim()->set_dim_param("N");
  for (const int64_t dim : dims) shape.add_dim()->set_dim_value(dim);
}

void fill(pb::TensorProto& tensor, Dice& dice) {
  tensor.set_data_type(dice.below(3) == 0 ? pb::TensorProto::FLOAT : pb::TensorProto::INT64);
  const size_t count = dice.below(5);
  if (dice.below(4) > 0 || count != 1) tensor.add_dims(static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    if (tensor.data_type() == pb::TensorProto::FLOAT) tensor.add_float_data(static_cast<float>(absurd_integer(dice)));
    else tensor.add_int64_data(absurd_integer(dice));
  }
}

// A float input of rank 1 to 5, one of another type, or a constant.
std::string add_operand(pb::GraphProto& graph, Dice& dice) {
  const std::string name = "i" + std::to_string(graph.input_size() + graph.initializer_size());
  if (dice.below(4) == 0) {
    pb::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(name);
    fill(tensor, dice);
    return name;
  }
  const int element = dice.below(4) > 0 ? int{pb::TensorProto::FLOAT} : int{kTypes[dice.below(kTypes.size())]};
  std::vector<int64_t> dims;
  for (size_t rank = dice.below(5); rank > 0; --rank) dims.push_back(static_cast<int64_t>(dice.below(12)));
  if (dice.below(2) == 0) dims = {4, 6, 6};
  pb::ValueInfoProto& input = *graph.add_input();
  input.set_name(name);
  set_type(*input.mutable_type(), element, dims, dice.below(30) > 0);
  return name;
}

void add_output(pb::GraphProto& graph, const std::string& name) {
  pb::ValueInfoProto& output = *graph.add_output();
  output.set_name(name);
  set_type(*output.mutable_type(), pb::TensorProto::FLOAT, {}, true);
}

// The node moves into `to`; what it reads and writes keeps its name.
void move_into_if(pb::GraphProto& graph, const pb::NodeProto& node) {
  pb::NodeProto& choice = *graph.add_node();
  choice.set_op_type("If");
  choice.add_input("flag");
  pb::TensorProto& flag = *graph.add_initializer();
  flag.set_name("flag");
  flag.set_data_type(pb::TensorProto::BOOL);
  flag.add_int32_data(1);
  for (const char* name : {"then_branch", "else_branch"}) {
    pb::AttributeProto& branch = *choice.add_attribute();
    branch.set_name(name);
    branch.set_type(pb::AttributeProto::GRAPH);
    pb::GraphProto& body = *branch.mutable_g();
    body.set_name(name);
    pb::NodeProto& inner = *body.add_node();
    inner = node;
    for (int i = 0; i < inner.output_size(); ++i) {
      if (!inner.output(i).empty()) inner.set_output(i, std::string(name) + inner.output(i));
      if (!inner.output(i).empty()) add_output(body, inner.output(i));
    }
  }
  for (const std::string& output : node.output()) choice.add_output(output);
}

// A call of a function with the node as its body; the call passes fewer operands now and then.
void move_into_function(pb::ModelProto& model, const pb::NodeProto& node, Dice& dice) {
  pb::FunctionProto& function = *model.add_functions();
  function.set_domain("own");
  function.set_name("f");
  for (const std::string& input : node.input())
    if (!input.empty() && std::ranges::find(function.input(), input) == function.input().end())
      function.add_input(input);
  for (const std::string& output : node.output())
    if (!output.empty()) function.add_output(output);
  *function.add_node() = node;
  *function.mutable_opset_import() = model.opset_import();
  auto& own = *model.add_opset_import();
  own.set_domain("own");
  own.set_version(1);
  pb::NodeProto& call = *model.mutable_graph()->add_node();
  call.set_domain("own");
  call.set_op_type("f");
  *call.mutable_input() = function.input();
  *call.mutable_output() = function.output();
  if (call.input_size() > 0 && dice.below(3) == 0) call.mutable_input()->RemoveLast();
}

}  // namespace

int64_t absurd_integer(Dice& dice) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  constexpr std::array kValues = {
      kMin,        kMin + 1,    int64_t{-1} << 31, int64_t{-255},    int64_t{-65},     int64_t{-3},
      int64_t{-2}, int64_t{-1}, int64_t{0},        int64_t{1},       int64_t{2},       int64_t{3},
      int64_t{4},  int64_t{6},  int64_t{64},       int64_t{1} << 31, int64_t{1} << 62, kMax};
  return kValues[dice.below(kValues.size())];
}

pb::AttributeProto random_attribute(const std::string& name, pb::AttributeProto::AttributeType type, Dice& dice) {
  pb::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(type);
  const bool plausible = dice.below(2) == 0;
  const auto integer = [&] { return plausible ? static_cast<int64_t>(dice.below(4)) : absurd_integer(dice); };
  constexpr std::array kWords = {"", "constant", "linear", "SAME_UPPER", "ij,jk->ik", "...ii", "mean", "max", "\xff"};
  switch (type) {
    case pb::AttributeProto::INT:
      attribute.set_i(integer());
      break;
    case pb::AttributeProto::FLOAT:
      attribute.set_f(plausible ? 0.5F : std::numeric_limits<float>::quiet_NaN());
      break;
    case pb::AttributeProto::STRING:
      attribute.set_s(kWords[dice.below(kWords.size())]);
      break;
    case pb::AttributeProto::INTS:
      for (size_t count = dice.below(7); count > 0; --count) attribute.add_ints(integer());
      break;
    case pb::AttributeProto::FLOATS:
      for (size_t count = dice.below(7); count > 0; --count) attribute.add_floats(plausible ? 2.0F : -1e30F);
      break;
    case pb::AttributeProto::STRINGS:
      for (size_t count = dice.below(4); count > 0; --count) attribute.add_strings(kWords[dice.below(kWords.size())]);
      break;
    case pb::AttributeProto::TENSOR:
      fill(*attribute.mutable_t(), dice);
      break;
    case pb::AttributeProto::GRAPH: {
      pb::GraphProto& body = *attribute.mutable_g();
      body.set_name("body");
      for (size_t i = dice.below(4); i > 0; --i) {
        pb::ValueInfoProto& input = *body.add_input();
        input.set_name(name + std::to_string(i));
        set_type(*input.mutable_type(), pb::TensorProto::FLOAT, {3}, false);
      }
      for (const auto& input : body.input())
        if (dice.below(2) == 0) add_output(body, input.name());
      break;
    }
    default:
      break;
  }
  return attribute;
}

pb::ModelProto one_operator_model(const pb::OpSchema& schema, int inputs, NodePlace place, Dice& dice) {
  pb::ModelProto model;
  model.set_ir_version(10);
  auto& opset = *model.add_opset_import();
  opset.set_domain("");
  opset.set_version(std::max(7, schema.SinceVersion() + static_cast<int>(dice.below(3))));
  pb::GraphProto& graph = *model.mutable_graph();
  graph.set_name("g");
  pb::NodeProto node;
  node.set_name("node");
  node.set_op_type(schema.Name());
  for (int i = 0; i < inputs; ++i) node.add_input(dice.below(20) == 0 ? "" : add_operand(graph, dice));
  if (graph.input_size() == 0) add_operand(graph, dice);
  const int outputs = std::max(1, std::min(schema.max_output(), schema.min_output() + static_cast<int>(dice.below(2))));
  for (int i = 0; i < outputs; ++i) node.add_output("o" + std::to_string(i));
  for (const auto& [name, attribute] : schema.attributes()) {
    if (!attribute.required && dice.below(2) == 0) continue;
    if (dice.below(30) == 0) continue;
    const auto type = dice.below(30) == 0 ? pb::AttributeProto::INTS : attribute.type;
    *node.add_attribute() = random_attribute(name, type, dice);
  }
  if (place == NodePlace::kTopLevel) *graph.add_node() = node;
  if (place == NodePlace::kFunction) move_into_function(model, node, dice);
  if (place == NodePlace::kIfBody) move_into_if(graph, node);
  for (const std::string& output : node.output()) add_output(graph, output);
  return model;
}

}  // namespace graphpipe::tests
