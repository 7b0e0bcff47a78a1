#include "frontend/libonnx_steps.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/shape_inference/implementation.h>
#include <onnx/version_converter/convert.h>

#include <exception>
#include <set>

#include "frontend/check_model.h"
#include "frontend/function_budget.h"
#include "frontend/node_context.h"
#include "frontend/read_model.h"
#include "ops/op_def.h"

// libonnx's own macro of this name would hide ours' meaning in messages below.
#undef fail_check

namespace graphpipe::frontend {
namespace {

namespace pb = graphpipe_onnx;

/// Opsets above this one are unknown to the library that the rows were written against.
constexpr int64_t kNewestOpset = 28;

Diagnostic bad_model(const std::string& origin, std::string message, std::string hint) {
  return {.code = Code::kBadModel, .origin = ModelText(origin), .message = std::move(message), .hint = std::move(hint)};
}

/// libonnx's messages quote names from the file.
std::string library_text(const std::exception& problem) {
  return Terminal::encode_text(std::string_view(problem.what()).substr(0, 500)).str();
}

int64_t main_opset(const pb::ModelProto& model) {
  for (const auto& import : model.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") return import.version();
  return 0;
}

Status check_header(const pb::ModelProto& model) {
  if (!model.has_graph()) return bad_model("", "the file holds no graph", "give an .onnx model file");
  const int64_t opset = main_opset(model);
  if (opset < 1)
    return bad_model("", "the file names no opset of the standard operators",
                     "export the model with torch.onnx.export");
  if (opset > kNewestOpset)
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .message = text("the file uses opset ", opset, ", the newest known one is ", kNewestOpset),
                      .hint = text("export with opset_version=", ops::kInternalOpset)};
  return Ok{};
}

bool has_stripped_tensor_or_body(const pb::NodeProto& node) {
  for (const auto& attribute : node.attribute())
    if (attribute.has_g() || attribute.graphs_size() > 0 ||
        (attribute.has_t() && attribute.t().data_location() == pb::TensorProto::EXTERNAL))
      return true;
  return false;
}

/// Every node against its schema, each on its own, so that all bad nodes are named. Nodes with bodies or stripped
/// tensors are left out: the checker would look for the stripped data on disk.
Status check_nodes(const pb::ModelProto& model) {
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
    if (schema == nullptr) continue;  // lowering refuses unknown ops by name
    try {
      pb::checker::check_node(node, context, scope);
    } catch (const std::exception& problem) {
      problems.push_back(bad_model(node.name().empty() ? node.op_type() : node.name(),
                                   text("breaks the rules of its operator: ", library_text(problem)),
                                   "export the model again, or correct the node"));
    }
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

Status inline_functions(pb::ModelProto& model, const Limits& limits) {
  GP_TRY_VOID(count_expanded_nodes(model, limits.expanded_nodes));
  if (model.functions_size() == 0) return Ok{};
  try {
    pb::inliner::InlineLocalFunctions(model, true);
  } catch (const std::exception& problem) {
    return bad_model("", text("its local functions cannot be inlined: ", library_text(problem)),
                     "inline them when exporting");
  }
  return Ok{};
}

/// Shapes help the converter and are compared with ours later; a model that ONNX cannot infer may still be lowered.
void infer_shapes(pb::ModelProto& model, Diagnostics& notes) {
  try {
    pb::ShapeInferenceOptions options{/*check_type=*/false, /*strict_mode=*/0, /*data_prop=*/false};
    pb::shape_inference::InferShapes(model, pb::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception& problem) {
    notes.push_back({.code = Code::kUnresolvedShape,
                     .severity = Severity::kWarning,
                     .message = text("ONNX's own shape inference fails: ", library_text(problem)),
                     .hint = "none needed where the import succeeds"});
  }
}

Status convert_opset(pb::ModelProto& model) {
  const int64_t opset = main_opset(model);
  if (opset >= ops::kInternalOpset) return Ok{};
  try {
    model = pb::version_conversion::ConvertVersion(model, ops::kInternalOpset);
    model.set_ir_version(10);  // the oldest IR version that knows the internal opset
  } catch (const std::exception& problem) {
    return Diagnostic{.code = Code::kUnsupportedOp,
                      .message = text("cannot be converted from opset ", opset, " to ", ops::kInternalOpset, ": ",
                                      library_text(problem)),
                      .hint = text("export with opset_version=", ops::kInternalOpset)};
  }
  return Ok{};
}

/// No function body of a schema has more nodes.
constexpr int64_t kLargestBody = 64;

/// Function bodies depend on the types of their operands, and the inliner does not look at initializers.
void declare_initializers(pb::GraphProto& graph) {
  std::set<std::string_view> typed;
  for (const auto& info : graph.value_info()) typed.insert(info.name());
  for (const auto& info : graph.input()) typed.insert(info.name());
  std::vector<const pb::TensorProto*> missing;
  for (const auto& tensor : graph.initializer())
    if (typed.count(tensor.name()) == 0) missing.push_back(&tensor);
  for (const pb::TensorProto* tensor : missing) {
    pb::ValueInfoProto& info = *graph.add_value_info();
    info.set_name(tensor->name());
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(tensor->data_type());
    for (const int64_t dim : tensor->dims()) type.mutable_shape()->add_dim()->set_dim_value(dim);
  }
}

/// Replaces operators that have no row but a function body in their schema by that body. Where that fails the operator
/// stays, and lowering refuses it by name.
void expand_schema_functions(pb::ModelProto& model, const Limits& limits) {
  std::set<std::string> names;
  int64_t nodes = model.graph().node_size();
  for (const auto& node : model.graph().node()) {
    if ((!node.domain().empty() && node.domain() != "ai.onnx") ||
        is_supported({.name = {}, .op = node.op_type(), .domain = {}, .inputs = {}, .outputs = {}, .attributes = {}}))
      continue;
    const auto* schema = pb::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(main_opset(model)), "");
    if (schema == nullptr || (!schema->HasFunction() && !schema->HasContextDependentFunction())) continue;
    names.insert(node.op_type());
    nodes += kLargestBody;
  }
  if (names.empty() || nodes > limits.expanded_nodes) return;
  pb::inliner::FunctionIdVector functions;
  for (const std::string& name : names) functions.emplace_back("", name);
  pb::ModelProto expanded = model;
  declare_initializers(*expanded.mutable_graph());
  try {
    const auto set = pb::inliner::FunctionIdSet::Create(std::move(functions));
    pb::inliner::InlineSelectedFunctions(expanded, *set, nullptr);
    model.Swap(&expanded);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

Result<Prepared> prepare_model(const std::string& stripped, size_t slot_count, const Limits& limits) {
  pb::ModelProto proto;
  if (!proto.ParseFromString(stripped))
    return Diagnostic{.code = Code::kMalformedFile,
                      .message = "not a valid ONNX file: the fields do not form a model",
                      .hint = "give an .onnx file, or fetch the file again"};
  GP_TRY_VOID(check_header(proto));
  Prepared prepared;
  GP_TRY(const Model as_stored, read_model(proto, slot_count));
  GP_TRY_VOID(check_model(as_stored));
  GP_TRY_VOID(check_nodes(proto));
  GP_TRY_VOID(inline_functions(proto, limits));
  infer_shapes(proto, prepared.notes);
  GP_TRY_VOID(convert_opset(proto));
  expand_schema_functions(proto, limits);
  GP_TRY(prepared.model, read_model(proto, slot_count));
  // Conversion drops metadata, which says what is a parameter.
  prepared.model.graph.metadata = as_stored.graph.metadata;
  prepared.declared_outputs = as_stored.graph.outputs;
  GP_TRY_VOID(check_model(prepared.model));
  return prepared;
}

}  // namespace graphpipe::frontend
