#include "frontend/padding_rows.h"

#include <optional>

namespace graphpipe::frontend {
namespace {

std::optional<int64_t> row_of(const ParameterRules& rules, const ir::Param& param) {
  std::optional<int64_t> row = rules.padding_row(param.name.raw());
  for (const ModelText& alias : param.aliases)
    if (!row) row = rules.padding_row(alias.raw());
  return row;
}

Diagnostic refused(const ir::Param& param, std::string message) {
  return {.code = Code::kBadParameter,
          .origin = param.name,
          .message = std::move(message),
          .hint = "correct 'PATTERN padding ROW' in the parameter file; `graphpipe inspect` shows names and shapes"};
}

}  // namespace

Status apply_padding_rows(const ParameterRules& rules, ir::Graph& graph) {
  const auto readers = ir::readers_of_values(graph);
  Diagnostics problems;
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const std::optional<int64_t> row = row_of(rules, param);
    if (!row) continue;
    const ir::Shape& shape = graph.value(param.value).type.shape;
    if (shape.empty() || !shape[0].is_fixed() || *row >= shape[0].factor) {
      problems.push_back(refused(param, text("it has no row ", *row, " that could be padding")));
      continue;
    }
    bool looked_up = false;
    for (const ir::NodeId reader : readers[param.value]) {
      ir::Node& node = graph.node(reader);
      if (node.op != "Gather" || node.inputs[0] != param.value || node.attributes.get_int("axis", 0) != 0) continue;
      node.attributes.set("padding_row", *row);
      looked_up = true;
    }
    if (!looked_up) problems.push_back(refused(param, "no node looks up its rows, so none can be padding"));
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::frontend
