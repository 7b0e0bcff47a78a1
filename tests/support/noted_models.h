#pragma once
// Models as PyTorch's exporter writes them with its optimiser, which notes what tensors were computed from.

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/folding_note.h"
#include "tests/support/exported_models.h"
#include "tests/support/onnx_text.h"

namespace graphpipe::testing {

inline std::string taken_by(const std::string& target, const std::string& arguments) {
  return text(target, "](args = (", arguments, "), kwargs = {})");
}

/// What the optimiser notes of a tensor, its elements, and where the calls of nodes stand.
struct Notes {
  std::map<std::string, std::string> folded_from;
  std::map<std::string, std::vector<float>> elements;
  std::map<std::string, std::pair<std::string, std::string>> places;  // of nodes by output: module, code
};

inline std::string with_notes(const std::string& bytes, const Notes& notes) {
  graphpipe_onnx::ModelProto model;
  REQUIRE(model.ParseFromString(bytes));
  for (const auto& [name, from] : notes.folded_from) {
    graphpipe_onnx::ValueInfoProto& value = *model.mutable_graph()->add_value_info();
    value.set_name(name);
    graphpipe_onnx::StringStringEntryProto& entry = *value.add_metadata_props();
    entry.set_key(std::string(frontend::kFoldingNote));
    entry.set_value(from);
  }
  for (graphpipe_onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
    if (const auto given = notes.elements.find(tensor.name()); given != notes.elements.end())
      tensor.mutable_float_data()->Assign(given->second.begin(), given->second.end());
  for (graphpipe_onnx::NodeProto& node : *model.mutable_graph()->mutable_node())
    if (const auto place = notes.places.find(node.output(0)); place != notes.places.end()) {
      const auto& [module, code] = place->second;
      const auto add = [&](const std::string& key, const std::string& value) {
        graphpipe_onnx::StringStringEntryProto& entry = *node.add_metadata_props();
        entry.set_key("pkg.torch.onnx." + key);
        entry.set_value(value);
      };
      add("name_scopes", text("['', '", module, "', '", node.output(0), "']"));
      add("stack_trace", text("File \"train.py\", line 1, in forward\n    y = self.model(x)\nFile ", code));
    }
  return model.SerializeAsString();
}

inline Result<frontend::Imported> import_noted(const std::string& bytes, const Notes& notes,
                                               const std::string& rules = "") {
  frontend::ImportRequest request;
  request.spec.loss.kind = "mse";
  request.spec.parameter_rules = ModelText(rules);
  return import_bytes(with_notes(bytes, notes), request);
}

inline const ir::Param& parameter(const ir::Graph& graph, const std::string& name) {
  for (const ir::ParamId id : graph.param_ids())
    if (graph.param(id).name.raw() == name) return graph.param(id);
  FAIL("no parameter " << name);
  return graph.param(ir::ParamId(0));
}

inline std::vector<float> elements(const ir::Graph& graph, const std::string& name) {
  const std::string& bytes = std::get<ir::InlineData>(parameter(graph, name).data).bytes;
  std::vector<float> result(bytes.size() / sizeof(float));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

inline std::string shape(const ir::Graph& graph, const std::string& name) {
  std::string dims;
  for (const ir::Dim dim : graph.value(parameter(graph, name).value).type.shape) dims += text(dim.factor, " ");
  return dims;
}

inline std::set<std::string> trained(const Result<frontend::Imported>& imported) {
  std::set<std::string> names;
  for (const auto& [name, decision] : decisions_of(imported))
    if (decision.trainable) names.insert(name);
  return names;
}

inline bool is_refused(const Result<frontend::Imported>& imported) {
  return !imported.ok() && reports(imported.problems(), Code::kLostByExport, "");
}

}  // namespace graphpipe::testing
