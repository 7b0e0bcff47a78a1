#include "codegen/names.h"

namespace graphpipe::codegen {
namespace {

std::string key(std::string_view separator, size_t id) { return text(separator, "\n    \"", id, "\": "); }

std::string node_entry(const ir::Node& node) {
  std::string origins;
  for (const ModelText& origin : node.origins)
    origins += text(origins.empty() ? "" : ", ", JsonString::encode(origin).str());
  std::string result =
      text("{\"op\": ", JsonString::encode_text(node.op).str(), ", \"phase\": \"", ir::phase_name(node.phase), "\"");
  if (node.serves.valid()) result += text(", \"serves\": ", node.serves);
  return text(result, ", \"origins\": [", origins, "]}");
}

}  // namespace

SourceFile write_names(const ir::Graph& graph) {
  std::string body = "{\n  \"schema\": \"graphpipe-names 1\",\n  \"nodes\": {";
  for (ir::NodeId id : graph.node_ids()) body += key(id.index() ? "," : "", id.index()) + node_entry(graph.node(id));
  body += "\n  },\n  \"parameters\": {";
  for (ir::ParamId id : graph.param_ids())
    body += key(id.index() ? "," : "", graph.param(id).value.index()) + JsonString::encode(graph.param(id).name).str();
  body += "\n  },\n  \"inputs\": {";
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    body += key(i ? "," : "", graph.inputs()[i].value.index()) + JsonString::encode(graph.inputs()[i].name).str();
  return {"names.json", body + "\n  }\n}\n"};
}

}  // namespace graphpipe::codegen
