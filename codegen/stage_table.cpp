#include "codegen/stage_table.h"

#include <algorithm>
#include <utility>

#include "codegen/id_bounds.h"
#include "codegen/node_emitter.h"
#include "codegen/stage_library.h"
#include "codegen/table_text.h"
#include "ops/emit_helpers.h"
#include "ops/looked_up_tables.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Param;
using ir::ParamId;
using ir::StageId;

std::string_view role_of(const Param& param) {
  switch (param.kind) {
    case ir::ParamKind::kBuffer:
      return "kBuffer";
    case ir::ParamKind::kConstant:
      return "kConstant";
    case ir::ParamKind::kWeight:
      break;
  }
  return param.trainable ? "kTrainable" : "kFrozen";
}

/// The further names of the stage's weights, an array each, by which groups of a run may name them.
class AliasArrays {
 public:
  /// The array's name; empty if there are no further names.
  std::string name_of(const Param& param) {
    if (param.kind != ir::ParamKind::kWeight || param.aliases.empty()) return {};
    std::vector<std::string> names;
    for (const ModelText& alias : param.aliases) names.push_back(CppLiteral::encode(alias).str());
    std::string array = text("kAliases", count_++);
    arrays_ += array_text("const char*", array, names);
    return array;
  }
  const std::string& arrays() const { return arrays_; }

 private:
  std::string arrays_;
  size_t count_ = 0;
};

std::vector<std::string> param_rows(const Graph& graph, const StageCut& cut, const WeightGroups& groups,
                                    TensorTable& tensors, AliasArrays& aliases) {
  std::vector<std::string> rows;
  const IdSet<ir::ValueId> tables = ops::looked_up_tables(graph);
  for (ParamId id : cut.params) {
    const Param& param = graph.param(id);
    const auto group = groups.group_of.find(id);
    const bool is_table = param.trainable && tables.contains(param.value);
    const std::string names = aliases.name_of(param);
    rows.push_back(text("{", CppLiteral::encode(param.name).str(), ", ", tensors.row(graph.value(param.value)),
                        ", ParamRole::", role_of(param), ", ", group == groups.group_of.end() ? -1 : group->second,
                        is_table        ? ", true"
                        : names.empty() ? ""
                                        : ", false",
                        names.empty() ? "" : ", " + names, "}"));
  }
  return rows;
}

std::vector<std::string> data_rows(const Graph& graph, const StageCut& cut, const SlotLayout& layout,
                                   TensorTable& tensors) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < cut.data.size(); ++i)
    rows.push_back(data_row(graph, graph.inputs()[cut.data[i]], layout.data[i], tensors));
  return rows;
}

std::vector<std::string> boundary_rows(const Graph& graph, const StageCut& cut, const SlotLayout& layout,
                                       TensorTable& tensors) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < cut.boundaries.size(); ++i) {
    const StageBoundary& boundary = cut.boundaries[i];
    rows.push_back(text("{", boundary.edge, ", ", boundary.is_input ? "true" : "false", ", ",
                        layout.boundaries[i].value, ", ", layout.boundaries[i].first_gradient, ", ",
                        boundary.gradients.size(), ", ", tensors.row(graph.value(boundary.value)), "}"));
  }
  return rows;
}

std::vector<std::string> output_rows(const Graph& graph, const StageCut& cut, const SlotLayout& layout,
                                     TensorTable& tensors) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < cut.outputs.size(); ++i) {
    const ir::Output& output = graph.outputs()[cut.outputs[i]];
    rows.push_back(text("{", CppLiteral::encode(output.name).str(), ", ", tensors.row(graph.value(output.value)), ", ",
                        layout.outputs[i], "}"));
  }
  return rows;
}

/// The values that the forward computes and leaves in slots, in node order.
std::vector<std::string> kept_rows(const Graph& graph, const SlotLayout& layout) {
  std::vector<std::pair<ir::NodeId, std::string>> rows;
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const Slot& slot = layout.slots[i];
    const ir::NodeId id = graph.value(slot.value).producer;
    if (!id.valid() || graph.node(id).phase != ir::Phase::kForward) continue;
    if (slot.use != SlotUse::kSaved && slot.use != SlotUse::kSentValue && slot.use != SlotUse::kOutput) continue;
    const std::vector<ModelText>& origins = graph.node(id).origins;
    const ModelText name = origins.empty() ? ModelText() : origins.front();
    rows.emplace_back(id, text("{", i, ", ", CppLiteral::encode(ModelText(graph.node(id).op)).str(), ", ",
                               CppLiteral::encode(name).str(), "}"));
  }
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.first; });
  std::vector<std::string> out;
  for (auto& [id, row] : rows) out.push_back(std::move(row));
  return out;
}

/// Comments that list the slots for a reader of the file.
std::string slot_comment(const Graph& graph, const SlotLayout& layout) {
  std::string result;
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const Slot& slot = layout.slots[i];
    result += text("// slot ", i, ": ", value_name(slot.value), " ", slot_use_name(slot.use), " ",
                   type_text(graph.value(slot.value).type), "\n");
  }
  return result;
}

}  // namespace

std::string data_row(const Graph& graph, const ir::Input& input, int slot, TensorTable& tensors) {
  const wire::IdBounds ids = id_bounds(graph, input.value);
  std::string bounds;
  if (ids.bounded())
    bounds =
        text(", {", ids.low, ", ", ids.high, ids.has_ignored ? text(", true, ", ops::integer(ids.ignored)) : "", "}");
  return text("{", CppLiteral::encode(input.name).str(), ", ", tensors.row(graph.value(input.value)), ", ", slot,
              bounds, "}");
}

WeightGroups weight_groups(const Graph& graph, const IdMap<StageId, StageCut>& cuts) {
  IdMap<ParamId, std::vector<StageId>> holders(graph.param_count());
  for (StageId stage : ids<StageId>(cuts.size()))
    for (ParamId param : cuts[stage].params)
      if (graph.param(param).trainable) holders[param].push_back(stage);
  WeightGroups groups;
  for (ParamId param : graph.param_ids()) {
    if (holders[param].size() < 2) continue;
    groups.group_of.emplace(param, static_cast<int>(groups.stages.size()));
    groups.stages.push_back(std::move(holders[param]));
  }
  return groups;
}

SourceFile write_stage_table(const Graph& graph, StageId stage, const StageCut& cut, const SlotLayout& layout,
                             const WeightGroups& groups, const std::string& first_line) {
  TensorTable tensors;
  AliasArrays aliases;
  const std::vector<std::string> params = param_rows(graph, cut, groups, tensors, aliases);
  const std::vector<std::string> data = data_rows(graph, cut, layout, tensors);
  const std::vector<std::string> boundaries = boundary_rows(graph, cut, layout, tensors);
  const std::vector<std::string> outputs = output_rows(graph, cut, layout, tensors);
  const std::vector<std::string> kept = kept_rows(graph, layout);
  std::vector<std::string> recompute;
  if (cut.recompute)
    for (int slot : layout.recompute_inputs) recompute.push_back(text(slot));
  const StageFunctions functions = functions_of(cut);
  const auto pointer = [](bool exists, std::string_view name) { return exists ? name : std::string_view("nullptr"); };

  std::string body = text("#include \"", stage_folder(stage), "/functions.h\"\n\nnamespace pipeline::stage", stage,
                          " {\n", "namespace {\n\nusing namespace graphpipe::runtime;\n\n", tensors.dims_array(), "\n");
  body += aliases.arrays() +
          "// name, tensor {type, dims, batch axis, rows per sample}, role, group, is a table, aliases\n" +
          array_text("ParamRow", "kParams", params);
  body += "// name, tensor, slot, ids [low, high), ignored\n" + array_text("DataRow", "kData", data);
  body += "// edge, is input, slot, gradient slot, gradient count, tensor\n" +
          array_text("BoundaryRow", "kBoundaries", boundaries);
  body += array_text("int32_t", "kRecomputeInputs", recompute);
  if (!outputs.empty()) body += "// name, tensor, slot\n";
  body += array_text("OutputRow", "kOutputs", outputs);
  body += "// slot, operator, name of the model's node\n" + array_text("KeptRow", "kKept", kept);
  body += "\n" + slot_comment(graph, layout) + "\n}  // namespace\n\n";
  body +=
      text("const StageEntry entry = {\n    .stage = ", stage, ",\n    .slot_size = ", layout.slots.size(),
           ",\n    .forward = ", pointer(functions.forward, "forward"),
           evaluates_otherwise(graph, cut) ? ",\n    .evaluate = evaluate" : "",
           ",\n    .input_gradient = ", pointer(functions.input_gradient, "input_gradient"),
           ",\n    .weight_gradient = ", pointer(functions.weight_gradient, "weight_gradient"),
           ",\n    .params = ", span_text("kParams", params.size()), ",\n    .data = ", span_text("kData", data.size()),
           ",\n    .boundaries = ", span_text("kBoundaries", boundaries.size()), ",\n    .loss_slot = ", layout.loss,
           ",\n    .loss_scale_slot = ", layout.loss_scale,
           ",\n    .recompute_inputs = ", span_text("kRecomputeInputs", recompute.size()),
           outputs.empty() ? "" : text(",\n    .outputs = ", span_text("kOutputs", outputs.size())),
           ",\n    .kept = ", span_text("kKept", kept.size()),
           exchanges_sums(graph, cut) ? ",\n    .exchanges_sums = true" : "",
           ",\n};\n\n}  // namespace pipeline::stage", stage, "\n");
  return {stage_folder(stage) + "/table.cpp", first_line + body};
}

}  // namespace graphpipe::codegen
