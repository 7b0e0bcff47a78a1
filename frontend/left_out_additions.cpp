#include "frontend/left_out_additions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/import_onnx.h"
#include "frontend/lowering.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

/// The operand for which zero is the end of what the operator takes.
std::optional<size_t> operand_above_zero(const OnnxNode& node) {
  if (node.op == "Div") return 1;
  if (node.op == "Sqrt" || node.op == "Reciprocal" || node.op == "Log") return 0;
  return std::nullopt;
}

class AdditionFinder {
 public:
  explicit AdditionFinder(const GraphBody& body) : body_(body), names_(value_names(body)) {
    for (const OnnxNode& node : body.nodes) {
      const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
      if (!call) continue;
      names_.insert(call->result);
      for (const std::string& output : node.outputs) made_by_.emplace(output, call->result);
    }
  }

  std::vector<ModelText> run() const {
    std::vector<ModelText> found;
    for (const OnnxNode& node : body_.nodes)
      if (lacks_addition(node)) found.push_back(node_label(node));
    return found;
  }

 private:
  bool lacks_addition(const OnnxNode& node) const {
    const std::optional<size_t> place = operand_above_zero(node);
    if (!place || *place >= node.inputs.size()) return false;
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (!call || call->arguments.size() < node.inputs.size()) return false;
    const std::string_view argument = call->argument(*place);
    if (!is_addition(argument) || names_.contains(std::string(argument.substr(1)))) return false;
    // Of two equal additions the exporter keeps one, under its own name.
    const auto maker = made_by_.find(node.inputs[*place]);
    return maker != made_by_.end() && call_of_value(maker->second) != "add";
  }

  static bool is_addition(std::string_view argument) {
    return argument.starts_with('%') && call_of_value(argument.substr(1)) == "add";
  }

  const GraphBody& body_;
  std::set<std::string> names_;                 // of all values, and of the results of calls
  std::map<std::string, std::string> made_by_;  // what nodes compute, and the results of their calls
};

}  // namespace

void report_left_out_additions(const GraphBody& body, Diagnostics& notes) {
  const std::vector<ModelText> found = AdditionFinder(body).run();
  if (found.empty()) return;
  notes.push_back(
      {.code = Code::kLostByExport,
       .severity = Severity::kWarning,
       .origin = found.front(),
       .message = text("the exporter's optimiser has left out what the module adds to its operand, as it does "
                       "with numbers up to 1e-8",
                       found.size() == 1 ? "" : text(" (", found.size(), " nodes, this one first)"),
                       ": at zero the result is not finite, where the module's is"),
       .hint = kExportRecipe});
}

}  // namespace graphpipe::frontend
