#include "frontend/check_nodes.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <exception>

#include "frontend/known.h"

// libonnx's own macro of this name would hide ours.
#undef fail_check

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

/// Attributes that name an axis or count axes, and the values that cannot occur with tensors of up to kMaxRank axes.
/// Inference functions of ONNX's library compute with them before they look at a shape.
struct AxisAttribute {
  std::string_view name;
  int64_t min, max;
};
constexpr std::array<AxisAttribute, 9> kAxisAttributes = {{{"axis", -kMaxRank, kMaxRank},
                                                           {"axes", -kMaxRank, kMaxRank},
                                                           {"perm", 0, kMaxRank},
                                                           {"batch_dims", 0, kMaxRank},
                                                           {"batch_axis", 0, kMaxRank},
                                                           {"time_axis", 0, kMaxRank},
                                                           {"new_axis", -kMaxRank, kMaxRank},
                                                           {"scan_input_axes", -kMaxRank, kMaxRank},
                                                           {"scan_output_axes", -kMaxRank, kMaxRank}}};

bool is_standard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

int opset_of(const google::protobuf::RepeatedPtrField<pb::OperatorSetIdProto>& imports) {
  for (const auto& import : imports)
    if (is_standard(import.domain())) return static_cast<int>(std::clamp<int64_t>(import.version(), 0, 1 << 20));
  return 0;
}

class NodeChecker {
 public:
  void graph(const pb::GraphProto& graph, int opset);
  void node(const pb::NodeProto& node, int opset);
  Diagnostics& problems() { return problems_; }

 private:
  void schema(const pb::NodeProto& node, int opset);
  void axes(const pb::NodeProto& node);
  void split(const pb::NodeProto& node);
  void equation(const pb::NodeProto& node);
  void problem(const pb::NodeProto& node, Code code, std::string message, std::string hint);

  Diagnostics problems_;
};

void NodeChecker::problem(const pb::NodeProto& node, Code code, std::string message, std::string hint) {
  if (problems_.size() >= kMaxProblems) return;
  const std::string& output = node.output_size() > 0 ? node.output(0) : node.op_type();
  problems_.push_back({.code = code,
                       .origin = ModelText(node.name().empty() ? output : node.name()),
                       .message = std::move(message),
                       .hint = std::move(hint)});
}

void NodeChecker::schema(const pb::NodeProto& node, int opset) {
  const auto* schema = pb::OpSchemaRegistry::Schema(node.op_type(), opset, pb::ONNX_DOMAIN);
  if (schema == nullptr) {
    if (is_onnx_operator(node.op_type()))
      problem(node, Code::kUnsupportedOp,
              text("the operator ", quoted(ModelText(node.op_type())), " does not exist in opset ", opset),
              "export the model again, with the opset that it was written for");
    return;
  }
  // The library allows the last operands of Concat and similar operators to be absent, which has no defined meaning.
  const auto& formal = schema->inputs();
  for (int i = 0; i < node.input_size() && !formal.empty(); ++i) {
    const size_t at = std::min(static_cast<size_t>(i), formal.size() - 1);
    if (node.input(i).empty() && formal[at].GetOption() == pb::OpSchema::Variadic)
      return problem(node, Code::kBadModel, text("its input ", i, " is absent and not optional"),
                     "export the model again, or correct the node");
  }
  // It was deprecated as soon as it was introduced, but the converter handles it.
  if (node.op_type() == "GroupNormalization" && schema->deprecated()) return;
  try {
    schema->Verify(node);
  } catch (const std::exception& found) {
    problem(node, Code::kBadModel,
            text("breaks the rules of the operator ", quoted(ModelText(node.op_type())), ": ",
                 Terminal::encode_text(std::string_view(found.what()).substr(0, 500)).str()),
            "export the model again, or correct the node");
  }
}

void NodeChecker::axes(const pb::NodeProto& node) {
  for (const auto& attribute : node.attribute()) {
    const auto* row = std::find_if(kAxisAttributes.begin(), kAxisAttributes.end(),
                                   [&](const AxisAttribute& known) { return known.name == attribute.name(); });
    if (row == kAxisAttributes.end()) continue;
    const auto outside = [row](int64_t value) { return value < row->min || value > row->max; };
    const bool bad = attribute.type() == pb::AttributeProto::INT
                         ? outside(attribute.i())
                         : std::any_of(attribute.ints().begin(), attribute.ints().end(), outside);
    if (bad)
      problem(
          node, Code::kBadModel,
          text("its attribute ", quoted(ModelText(attribute.name())), " is not between ", row->min, " and ", row->max),
          "export the model again, or correct the node");
  }
}

/// The library creates a list as long as Split's attribute says.
void NodeChecker::split(const pb::NodeProto& node) {
  if (node.op_type() != "Split") return;
  for (const auto& attribute : node.attribute())
    if (attribute.name() == "num_outputs" && attribute.i() != node.output_size())
      problem(node, Code::kBadModel,
              text("its attribute 'num_outputs' is ", attribute.i(), ", and it has ", node.output_size(), " outputs"),
              "export the model again, or correct the node");
}

/// Letters, blanks, and at most one "..." of each operand and of the result. The library's inference does not end on
/// some other characters, and counts to 2^32 for further dots.
bool is_equation(std::string_view equation) {
  for (const std::string_view side : split(equation, "->"))
    for (std::string_view term : split(side, ",")) {
      const size_t ellipsis = term.find("...");
      const std::string_view before = term.substr(0, ellipsis),
                             behind = ellipsis == std::string_view::npos ? "" : term.substr(ellipsis + 3);
      const auto is_label = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ' '; };
      if (!std::ranges::all_of(before, is_label) || !std::ranges::all_of(behind, is_label)) return false;
    }
  return true;
}

void NodeChecker::equation(const pb::NodeProto& node) {
  if (node.op_type() != "Einsum") return;
  for (const auto& attribute : node.attribute())
    if (attribute.name() == "equation" && !is_equation(attribute.s()))
      problem(node, Code::kBadModel,
              text("its equation ", quoted(ModelText(attribute.s())),
                   " holds other signs than letters, ',', '->' and one '...' per operand"),
              "export the model again, or correct the node");
}

void NodeChecker::node(const pb::NodeProto& node, int opset) {
  if (is_standard(node.domain())) {
    schema(node, opset);
    axes(node);
    split(node);
    equation(node);
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) graph(attribute.g(), opset);
    for (const auto& body : attribute.graphs()) graph(body, opset);
  }
}

void NodeChecker::graph(const pb::GraphProto& graph, int opset) {
  for (const auto& item : graph.node()) node(item, opset);
}

}  // namespace

Status check_nodes(const pb::ModelProto& model) {
  NodeChecker checker;
  const int opset = opset_of(model.opset_import());
  checker.graph(model.graph(), opset);
  for (const auto& function : model.functions()) {
    const int own = opset_of(function.opset_import());
    for (const auto& item : function.node()) checker.node(item, own == 0 ? opset : own);
  }
  if (!checker.problems().empty()) return checker.problems();
  return Ok{};
}

bool is_onnx_operator(const std::string& op) { return pb::OpSchemaRegistry::Schema(op, pb::ONNX_DOMAIN) != nullptr; }

}  // namespace graphpipe::frontend
