// graphpipe inspect: what a model holds.

#include <iostream>
#include <map>

#include "driver/cli/commands.h"
#include "driver/pipeline/model_source.h"
#include "driver/report/report.h"

namespace graphpipe::driver {
namespace {

std::string shape_text(const ir::TensorType& type) {
  std::string out(ir::dtype_name(type.dtype));
  out += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) {
    const ir::Dim dim = type.shape[i];
    if (i > 0) out += ',';
    if (dim.is_fixed()) {
      out += std::to_string(dim.factor);
    } else {
      if (dim.factor != 1) out += std::to_string(dim.factor) + "*";
      out += dim.power == 1 ? "B" : text("B^", dim.power);
    }
  }
  return out + "]";
}

std::string name_text(const ModelText& name) { return Terminal::encode(name).str(); }

struct Totals {
  double trained = 0, frozen = 0, fixed = 0;  // bytes
};

Totals totals_of(const ir::Graph& graph) {
  Totals totals;
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const auto bytes = static_cast<double>(ir::byte_size(graph.value(param.value).type, Samples(1)).count);
    if (param.kind != ir::ParamKind::kWeight) totals.fixed += bytes;
    else if (param.trainable) totals.trained += bytes;
    else totals.frozen += bytes;
  }
  return totals;
}

std::map<std::string, int64_t> op_counts(const ir::Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const ir::NodeId id : graph.node_ids()) ++counts[graph.node(id).op];
  return counts;
}

void print_text(const frontend::Imported& imported) {
  const ir::Graph& graph = imported.graph;
  std::cout << "inputs (B is the batch)\n";
  for (const ir::Input& input : graph.inputs())
    std::cout << "  " << name_text(input.name) << "  " << shape_text(graph.value(input.value).type) << "\n";
  std::cout << "outputs\n";
  for (const ir::Output& output : graph.outputs())
    std::cout << "  " << name_text(output.name) << "  " << shape_text(graph.value(output.value).type) << "\n";
  std::vector<std::vector<std::string>> rows{{"parameter", "type", "role", "trained", "why"}};
  for (const frontend::ParameterDecision& decision : imported.parameters) {
    const ir::Value& value = graph.value(graph.param(decision.param).value);
    rows.push_back({name_text(decision.name), shape_text(value.type), std::string(frontend::role_name(decision.role)),
                    decision.trainable ? "yes" : "no", Terminal::encode_text(decision.reason).str()});
  }
  std::cout << table(rows);
  const Totals totals = totals_of(graph);
  std::cout << "trained " << human_bytes(totals.trained) << ", frozen " << human_bytes(totals.frozen)
            << ", constants and buffers " << human_bytes(totals.fixed) << "\n";
  std::cout << graph.node_count() << " operators:";
  for (const auto& [op, count] : op_counts(graph)) std::cout << " " << op << " " << count;
  std::cout << "\n";
}

JsonObject tensor_json(const ModelText& name, const ir::Value& value) {
  JsonObject object;
  object.add("name", name.raw()).add("type", shape_text(value.type));
  return object;
}

JsonObject to_json(const frontend::Imported& imported) {
  const ir::Graph& graph = imported.graph;
  std::vector<JsonObject> inputs, outputs, parameters;
  for (const ir::Input& input : graph.inputs()) inputs.push_back(tensor_json(input.name, graph.value(input.value)));
  for (const ir::Output& output : graph.outputs())
    outputs.push_back(tensor_json(output.name, graph.value(output.value)));
  for (const frontend::ParameterDecision& decision : imported.parameters) {
    JsonObject object = tensor_json(decision.name, graph.value(graph.param(decision.param).value));
    object.add("role", frontend::role_name(decision.role)).add("trained", decision.trainable);
    parameters.push_back(object.add("reason", decision.reason));
  }
  JsonObject ops;
  for (const auto& [op, count] : op_counts(graph)) ops.add(op, count);
  const Totals totals = totals_of(graph);
  JsonObject object;
  object.add("inputs", inputs).add("outputs", outputs).add("parameters", parameters).add("operators", ops);
  object.add("trained_bytes", totals.trained).add("frozen_bytes", totals.frozen).add("fixed_bytes", totals.fixed);
  return object;
}

}  // namespace

int run_inspect(const Options& options) {
  const Result<frontend::Imported> imported = import_model(options);
  if (!imported) return report_problems(options, "inspect", imported.problems());
  report_notes(options, imported->notes);
  if (options.json) print_json("inspect", to_json(*imported), imported->notes);
  else print_text(*imported);
  return 0;
}

}  // namespace graphpipe::driver
