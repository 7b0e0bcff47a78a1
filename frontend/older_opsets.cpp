#include "frontend/older_opsets.h"

#include <onnx/onnx_pb.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

using Ranks = std::map<std::string, int>;

bool is_standard(const pb::NodeProto& node, std::string_view op) {
  return node.op_type() == op && (node.domain().empty() || node.domain() == "ai.onnx");
}

pb::AttributeProto* find_attribute(pb::NodeProto& node, std::string_view name) {
  for (pb::AttributeProto& attribute : *node.mutable_attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

pb::AttributeProto& attribute_of(pb::NodeProto& node, std::string_view name) {
  if (pb::AttributeProto* found = find_attribute(node, name)) return *found;
  pb::AttributeProto& made = *node.add_attribute();
  made.set_name(std::string(name));
  return made;
}

void set_int(pb::NodeProto& node, std::string_view name, int64_t value) {
  pb::AttributeProto& attribute = attribute_of(node, name);
  attribute.set_type(pb::AttributeProto::INT);
  attribute.set_i(value);
}

void set_string(pb::NodeProto& node, std::string_view name, std::string_view value) {
  pb::AttributeProto& attribute = attribute_of(node, name);
  attribute.set_type(pb::AttributeProto::STRING);
  attribute.set_s(std::string(value));
}

class Preparation {
 public:
  Preparation(pb::ModelProto& model, int64_t opset) : opset_(opset) {
    for_each_node(*model.mutable_graph(), [&](const pb::NodeProto& node) {
      read_.insert(node.input().begin(), node.input().end());
      names_.insert(node.input().begin(), node.input().end());
      names_.insert(node.output().begin(), node.output().end());
    });
    note_edges(*model.mutable_graph());
    run(*model.mutable_graph(), {});
  }

 private:
  /// Names of the inputs, initializers and outputs of graph and bodies.
  void note_edges(pb::GraphProto& graph) {
    for (const pb::ValueInfoProto& input : graph.input()) names_.insert(input.name());
    for (const pb::TensorProto& tensor : graph.initializer()) names_.insert(tensor.name());
    for (const pb::ValueInfoProto& output : graph.output()) read_.insert(output.name());
    for (pb::NodeProto& node : *graph.mutable_node())
      for (pb::AttributeProto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) note_edges(*attribute.mutable_g());
  }

  static void note_ranks(const google::protobuf::RepeatedPtrField<pb::ValueInfoProto>& infos, Ranks& ranks) {
    for (const pb::ValueInfoProto& info : infos)
      if (info.type().has_tensor_type() && info.type().tensor_type().has_shape())
        ranks[info.name()] = info.type().tensor_type().shape().dim_size();
  }

  /// `ranks`: those of the values outside the graph.
  void run(pb::GraphProto& graph, Ranks ranks) {
    note_ranks(graph.input(), ranks);
    note_ranks(graph.value_info(), ranks);
    note_ranks(graph.output(), ranks);
    for (const pb::TensorProto& tensor : graph.initializer()) ranks[tensor.name()] = tensor.dims_size();
    google::protobuf::RepeatedPtrField<pb::NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (pb::NodeProto& node : nodes) {
      for (pb::AttributeProto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) run(*attribute.mutable_g(), ranks);
      take(node, graph, ranks);
    }
  }

  static std::optional<int> rank_of(const pb::NodeProto& node, int input, const Ranks& ranks) {
    const auto found = input < node.input_size() ? ranks.find(node.input(input)) : ranks.end();
    return found == ranks.end() ? std::nullopt : std::optional(found->second);
  }

  /// Adds the node to the graph, or an equivalent.
  void take(pb::NodeProto& node, pb::GraphProto& graph, const Ranks& ranks) {
    const bool is_softmax =
        is_standard(node, "Softmax") || is_standard(node, "LogSoftmax") || is_standard(node, "Hardmax");
    // Below 5 a Reshape has its shape as an attribute: the converter handles those.
    if (opset_ >= 5 && opset_ < 13 && is_softmax && node.input_size() == 1 && node.output_size() == 1)
      return take_softmax(node, graph, rank_of(node, 0, ranks));
    if (opset_ < 14 && is_standard(node, "BatchNormalization")) drop_saved_statistics(node);
    if (opset_ < 7 && is_standard(node, "PRelu"))
      turn_slopes(node, graph, rank_of(node, 0, ranks), rank_of(node, 1, ranks));
    graph.add_node()->Swap(&node);
  }

  void take_softmax(pb::NodeProto& node, pb::GraphProto& graph, std::optional<int> rank) {
    const pb::AttributeProto* given = find_attribute(node, "axis");
    const int64_t axis = given == nullptr ? 1 : given->i();
    const bool is_last = rank && (axis == *rank - 1 || axis == -1);
    set_int(node, "axis", -1);
    if (is_last) {
      graph.add_node()->Swap(&node);
      return;
    }
    const std::string shape = name_beside(node.output(0), "shape"), rows = name_beside(node.output(0), "rows"),
                      result = name_beside(node.output(0), "result");
    add(graph, "Shape", {node.input(0)}, shape);
    set_int(add(graph, "Flatten", {node.input(0)}, rows), "axis", axis);
    const std::string output = node.output(0);
    node.set_input(0, rows);
    node.set_output(0, result);
    graph.add_node()->Swap(&node);
    add(graph, "Reshape", {result, shape}, output);
  }

  void drop_saved_statistics(pb::NodeProto& node) const {
    while (node.output_size() > 3 && !read_.contains(node.output(node.output_size() - 1)))
      node.mutable_output()->RemoveLast();
  }

  void turn_slopes(pb::NodeProto& node, pb::GraphProto& graph, std::optional<int> rank, std::optional<int> slopes) {
    if (!rank || *rank < 3 || slopes != 1) return;
    const std::string turned = name_beside(node.output(0), "slopes");
    pb::AttributeProto& axes = attribute_of(add(graph, "Unsqueeze", {node.input(1)}, turned), "axes");
    axes.set_type(pb::AttributeProto::INTS);
    for (int64_t axis = 1; axis < *rank - 1; ++axis) axes.add_ints(axis);
    node.set_input(1, turned);
  }

  std::string name_beside(const std::string& value, std::string_view what) {
    std::string name = value + "/" + std::string(what);
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  static pb::NodeProto& add(pb::GraphProto& graph, const char* op, std::initializer_list<std::string> inputs,
                            const std::string& output) {
    pb::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  int64_t opset_;
  std::set<std::string> read_, names_;
};

/// For constants, whether any is below 1 and whether any is above.
struct Scale {
  bool smaller = false, larger = false;
};
using Scales = std::map<std::string, Scale>;

void note_constant(const std::string& name, const pb::TensorProto& tensor, Scales& scales) {
  if (tensor.data_type() != pb::TensorProto::FLOAT || tensor.dims_size() != 1) return;
  std::vector<float> numbers(tensor.float_data().begin(), tensor.float_data().end());
  const std::string& raw = tensor.raw_data();
  for (size_t at = 0; at + sizeof(float) <= raw.size(); at += sizeof(float))
    std::memcpy(&numbers.emplace_back(), raw.data() + at, sizeof(float));
  Scale& scale = scales[name];
  for (const float number : numbers) {
    scale.smaller = scale.smaller || number < 1;
    scale.larger = scale.larger || number > 1;
  }
}

void note_constants(pb::GraphProto& graph, Scales& scales) {
  for (const pb::TensorProto& tensor : graph.initializer()) note_constant(tensor.name(), tensor, scales);
  for (pb::NodeProto& node : *graph.mutable_node())
    for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) note_constants(*attribute.mutable_g(), scales);
      if (is_standard(node, "Constant") && attribute.has_t() && node.output_size() == 1)
        note_constant(node.output(0), attribute.t(), scales);
    }
}

Status scale_places(pb::NodeProto& node, const Scales& scales) {
  const auto known = node.input_size() > 2 ? scales.find(node.input(2)) : scales.end();
  const Scale scale = known == scales.end() ? Scale() : known->second;
  const pb::AttributeProto* mode = find_attribute(node, "mode");
  const bool is_nearest = mode == nullptr || mode->s() == "nearest";
  if (is_nearest && scale.smaller && scale.larger)
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .origin = ModelText(node.name().empty() ? node.output(0) : node.name()),
                      .message =
                          "takes the nearest neighbour, of a tensor that gets larger along one axis and smaller "
                          "along another, in the way of opset 10",
                      .hint = "export with opset_version=11 or later"};
  set_string(node, "coordinate_transformation_mode", "asymmetric");
  set_string(node, "nearest_mode", scale.smaller ? "ceil" : "floor");
  return Ok{};
}

}  // namespace

void for_each_node(pb::GraphProto& graph, const std::function<void(pb::NodeProto&)>& visit) {
  for (pb::NodeProto& node : *graph.mutable_node()) {
    for (pb::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) for_each_node(*attribute.mutable_g(), visit);
    visit(node);
  }
}

void prepare_conversion(pb::ModelProto& model, int64_t opset) {
  if (opset < 14) Preparation(model, opset);
}

Status finish_conversion(pb::ModelProto& model, int64_t opset) {
  Scales scales;
  if (opset <= 10) note_constants(*model.mutable_graph(), scales);
  Diagnostics problems;
  for_each_node(*model.mutable_graph(), [&](pb::NodeProto& node) {
    if (opset <= 10 && is_standard(node, "Resize"))
      if (Status scaled = scale_places(node, scales); !scaled) problems.push_back(scaled.problems().front());
    if (opset < 14 && is_standard(node, "BatchNormalization") && node.output_size() > 1)
      set_int(node, "training_mode", 1);
  });
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::frontend
