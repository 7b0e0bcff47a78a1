#include "frontend/libonnx_steps.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/version_converter/convert.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "frontend/check_nodes.h"
#include "frontend/expand_functions.h"
#include "frontend/function_budget.h"
#include "frontend/libonnx_exception.h"
#include "frontend/older_opsets.h"
#include "ops/op_def.h"

// libonnx's own macro of this name would hide ours' meaning in messages below.
#undef fail_check

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

Diagnostic bad_model(const std::string& origin, std::string message, std::string hint) {
  return {.code = Code::kBadModel, .origin = ModelText(origin), .message = std::move(message), .hint = std::move(hint)};
}

bool has_stripped_tensor_or_body(const pb::NodeProto& node) {
  for (const auto& attribute : node.attribute())
    if (attribute.has_g() || attribute.graphs_size() > 0 ||
        (attribute.has_t() && attribute.t().data_location() == pb::TensorProto::EXTERNAL))
      return true;
  return false;
}

/// Checks what check_nodes does not, such as the fields of attributes. Nodes with bodies or stripped tensors are
/// skipped: the checker would look for the stripped data on disk.
Status check_with_library(const pb::ModelProto& model) {
  pb::checker::CheckerContext context;
  context.set_ir_version(static_cast<int>(model.ir_version()));
  std::unordered_map<std::string, int> imports;
  for (const auto& import : model.opset_import()) imports[import.domain()] = static_cast<int>(import.version());
  if (imports.count("") == 0) imports[""] = static_cast<int>(main_opset(model));
  context.set_opset_imports(imports);
  Diagnostics problems;
  const pb::checker::LexicalScopeContext scope;
  for (const auto& node : model.graph().node()) {
    if ((!node.domain().empty() && node.domain() != "ai.onnx") || has_stripped_tensor_or_body(node)) continue;
    const auto* schema =
        pb::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(main_opset(model)), pb::ONNX_DOMAIN);
    if (schema == nullptr) continue;     // lowering rejects unknown ops by name
    if (schema->deprecated()) continue;  // check_nodes has rejected those that the converter does not know
    if (const auto thrown = exception_of([&] { pb::checker::check_node(node, context, scope); }))
      problems.push_back(bad_model(node.name().empty() ? node.op_type() : node.name(),
                                   text("breaks the rules of its operator: ", *thrown),
                                   "export the model again, or correct the node"));
    if (problems.size() >= kMaxProblems) break;
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

/// By the function's domain, name and overload.
using FunctionDefaults = std::map<std::tuple<std::string, std::string, std::string>, std::vector<pb::AttributeProto>>;

template <typename Nodes>
void spell_out_calls(Nodes& nodes, const FunctionDefaults& defaults) {
  for (pb::NodeProto& node : nodes) {
    for (pb::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) spell_out_calls(*attribute.mutable_g()->mutable_node(), defaults);
    if (const auto called = defaults.find({node.domain(), node.op_type(), node.overload()}); called != defaults.end())
      spell_out(node, called->second);
  }
}

/// A function whose body passes an attribute without a default on to a call leaves it, if it is not given, to that
/// function's default: so that becomes its own default.
void hand_on_defaults(const pb::ModelProto& model, FunctionDefaults& defaults) {
  const auto default_of = [&](const pb::NodeProto& call, const std::string& name) -> const pb::AttributeProto* {
    const auto called = defaults.find({call.domain(), call.op_type(), call.overload()});
    if (called == defaults.end()) return nullptr;
    const auto found = std::ranges::find(called->second, name, &pb::AttributeProto::name);
    return found == called->second.end() ? nullptr : &*found;
  };
  for (bool more = true; more;) {
    more = false;
    for (const pb::FunctionProto& function : model.functions()) {
      auto& own = defaults[{function.domain(), function.name(), function.overload()}];
      for (const pb::NodeProto& node : function.node())
        for (const pb::AttributeProto& attribute : node.attribute()) {
          const std::string& name = attribute.ref_attr_name();
          const pb::AttributeProto* handed = name.empty() ? nullptr : default_of(node, attribute.name());
          if (handed == nullptr || std::ranges::find(own, name, &pb::AttributeProto::name) != own.end()) continue;
          own.push_back(*handed);
          own.back().set_name(name);
          more = true;
        }
    }
  }
}

void spell_out_defaults_of_functions(pb::ModelProto& model) {
  FunctionDefaults defaults;
  for (const pb::FunctionProto& function : model.functions())
    if (function.attribute_proto_size() > 0)
      defaults[{function.domain(), function.name(), function.overload()}] = {function.attribute_proto().begin(),
                                                                             function.attribute_proto().end()};
  if (defaults.empty()) return;
  hand_on_defaults(model, defaults);
  spell_out_calls(*model.mutable_graph()->mutable_node(), defaults);
  for (pb::FunctionProto& function : *model.mutable_functions()) spell_out_calls(*function.mutable_node(), defaults);
}

Status inline_functions(pb::ModelProto& model, const Limits& limits) {
  GP_TRY_VOID(count_expanded_nodes(model, limits.expanded_nodes));
  if (model.functions_size() == 0) return Ok{};
  spell_out_defaults_of_functions(model);
  if (const auto thrown = exception_of([&] { pb::inliner::InlineLocalFunctions(model, true); }))
    return bad_model("", text("its local functions cannot be inlined: ", *thrown), "inline them when exporting");
  return Ok{};
}

void forget_negative_sizes(google::protobuf::RepeatedPtrField<pb::ValueInfoProto>& infos) {
  for (pb::ValueInfoProto& info : infos) {
    if (!info.type().tensor_type().has_shape()) continue;
    for (auto& dim : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (dim.has_dim_value() && dim.dim_value() < 0) dim.clear_dim_value();
  }
}

/// The library computes with the sizes that a file declares, and reads past the end of a shape if one is negative. A
/// negative size is treated as unknown.
void forget_negative_sizes(pb::GraphProto& graph) {
  forget_negative_sizes(*graph.mutable_input());
  forget_negative_sizes(*graph.mutable_output());
  forget_negative_sizes(*graph.mutable_value_info());
  for (pb::NodeProto& node : *graph.mutable_node())
    for (pb::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) forget_negative_sizes(*attribute.mutable_g());
}

/// The operators of the standard domain that are unknown in this opset, each once, in the order of their nodes.
void find_unknown(const pb::GraphProto& graph, int opset, std::set<std::string>& seen, Diagnostics& problems) {
  for (const pb::NodeProto& node : graph.node()) {
    for (const pb::AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) find_unknown(attribute.g(), opset, seen, problems);
    if (!node.domain().empty() || pb::OpSchemaRegistry::Schema(node.op_type(), opset, "") != nullptr ||
        !seen.insert(node.op_type()).second)
      continue;
    const std::string& name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
    problems.push_back(
        {.code = Code::kUnsupportedOp,
         .origin = ModelText(name),
         .message = text("the operator ", quoted(ModelText(node.op_type())), " is none of opset ", opset),
         .hint = "export the model again, or write this part with other operators"});
  }
}

Status convert_opset(pb::ModelProto& model) {
  const int64_t opset = main_opset(model);
  if (opset >= ops::kInternalOpset) return Ok{};
  std::set<std::string> seen;
  Diagnostics unknown;
  find_unknown(model.graph(), static_cast<int>(opset), seen, unknown);
  if (!unknown.empty()) return unknown;
  prepare_conversion(model, opset);
  // The constructor of a converter copies every schema of the library, which takes longer than most conversions.
  static const pb::version_conversion::DefaultVersionConverter kConverter;
  if (const auto thrown = exception_of(
          [&] { model = kConverter.convert_version(model, pb::OpSetID(opset), pb::OpSetID(ops::kInternalOpset)); }))
    return Diagnostic{
        .code = Code::kUnsupportedOp,
        .message = text("cannot be converted from opset ", opset, " to ", ops::kInternalOpset, ": ", *thrown),
        .hint = text("export with opset_version=", ops::kInternalOpset)};
  GP_TRY_VOID(finish_conversion(model, opset));
  model.set_ir_version(10);  // the oldest IR version that knows the internal opset
  return Ok{};
}

}  // namespace

std::string_view step_name(LibonnxStep step) {
  switch (step) {
    case LibonnxStep::kNone:
      break;
    case LibonnxStep::kCheck:
      return "it checks the nodes";
    case LibonnxStep::kInline:
      return "it inlines the local functions";
    case LibonnxStep::kInfer:
      return "it infers shapes";
    case LibonnxStep::kConvert:
      return "it converts the opset";
    case LibonnxStep::kExpand:
      return "it expands operators";
  }
  return "it starts";
}

int64_t main_opset(const pb::ModelProto& model) {
  for (const auto& import : model.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") return import.version();
  return 0;
}

Status run_libonnx_steps(pb::ModelProto& model, const Limits& limits, const std::function<void(LibonnxStep)>& at,
                         Diagnostics& notes) {
  at(LibonnxStep::kCheck);
  GP_TRY_VOID(check_with_library(model));
  at(LibonnxStep::kInline);
  GP_TRY_VOID(inline_functions(model, limits));
  // A call with fewer operands than its function leaves nodes of the body without theirs.
  GP_TRY_VOID(check_nodes(model));
  at(LibonnxStep::kInfer);
  forget_negative_sizes(*model.mutable_graph());
  if (const auto problem = infer_shapes(model))
    notes.push_back({.code = Code::kUnresolvedShape,
                     .severity = Severity::kWarning,
                     .message = text("ONNX's own shape inference fails: ", *problem),
                     .hint = "none needed where the import succeeds"});
  at(LibonnxStep::kConvert);
  GP_TRY_VOID(convert_opset(model));
  at(LibonnxStep::kExpand);
  expand_schema_functions(model, limits);
  return Ok{};
}

}  // namespace graphpipe::frontend
