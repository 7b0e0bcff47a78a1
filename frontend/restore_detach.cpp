#include "frontend/restore_detach.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/import_onnx.h"

namespace graphpipe::frontend {
namespace {

/// The operands of the node that are this argument of its call, if their places say it.
bool is_argument(const ExportedCall& call, const OnnxNode& node, size_t input, const std::string& value) {
  const bool has_all = node.inputs.size() == call.arguments.size();
  const bool multiplies_first = is_product(node) && input == 0 && weight_argument(call.target) == 1u;
  return (has_all || multiplies_first) && call.argument(input) == "%" + value;
}

class DetachRestorer {
 public:
  DetachRestorer(GraphBody& body, const ExportSignature& signature) : body_(body), signature_(signature) {
    for (const Tensor& tensor : body.initializers) names_.insert(tensor.name);
    for (const ValueInfo& input : body.inputs) names_.insert(input.name);
    for (const OnnxNode& node : body.nodes) {
      computed_.insert(node.outputs.begin(), node.outputs.end());
      if (!node.exported_from.empty()) ++nodes_of_[node.exported_from];
    }
    names_.insert(computed_.begin(), computed_.end());
  }

  /// Returns the nodes of which it is not known what they read.
  std::vector<ModelText> run() {
    for (OnnxNode& node : body_.nodes) {
      if (const auto call = parse_exported_call(node.exported_from)) read(*call, node);
      nodes_.push_back(std::move(node));
    }
    body_.nodes = std::move(nodes_);
    return std::move(unknown_);
  }

 private:
  void read(const ExportedCall& call, OnnxNode& node) {
    for (const std::string& argument : call.values) {
      const std::string value = argument.substr(1);
      if (call_of_value(value) != "detach" || names_.contains(value)) continue;
      bool is_found = false;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (is_argument(call, node, i, value)) is_found = true, detach(node, i, value);
      if (!is_found && nodes_of_[node.exported_from] == 1 && reads_unnamed(call, node))
        unknown_.push_back(node_label(node));
    }
  }

  /// What is no parameter and computed by no node has no gradient to block.
  void detach(OnnxNode& node, size_t input, const std::string& value) {
    const std::string from = node.inputs[input];
    if (!computed_.contains(from) && !signature_.lists_parameter(from)) return;
    const auto [made, is_new] = detached_.emplace(value, from);
    if (made->second != from) return;
    if (is_new) {
      OnnxNode& identity = nodes_.emplace_back();
      identity.name = value;
      identity.op = "Identity";
      identity.inputs = {from};
      identity.outputs = {value};
      identity.exported_from =
          text("%", value, " : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%", from,
               ",), kwargs = {})");
    }
    node.inputs[input] = value;
  }

  bool reads_unnamed(const ExportedCall& call, const OnnxNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const std::string& input) {
      return computed_.contains(input) && std::ranges::find(call.values, "%" + input) == call.values.end();
    });
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  std::set<std::string> names_, computed_;       // of all values and tensors; of what nodes compute
  std::map<std::string, int64_t> nodes_of_;      // of each call
  std::map<std::string, std::string> detached_;  // values, and what they are equal to
  std::vector<OnnxNode> nodes_;
  std::vector<ModelText> unknown_;
};

}  // namespace

void restore_detach(GraphBody& body, const ExportSignature& signature, bool refuses_losses, Diagnostics& notes) {
  const std::vector<ModelText> unknown = DetachRestorer(body, signature).run();
  if (unknown.empty()) return;
  notes.push_back({.code = Code::kLostByExport,
                   .severity = refuses_losses ? Severity::kError : Severity::kWarning,
                   .origin = unknown.front(),
                   .message =
                       "the module detaches a value that this node reads, which the exporter's optimiser has left "
                       "out: gradients would pass it",
                   .hint = text(kExportRecipe, "; --accept trains the file as it is")});
}

}  // namespace graphpipe::frontend
