#include "frontend/restore_dropout.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "frontend/exported_call.h"
#include "frontend/value_names.h"
#include "support/text.h"
#include "wire/element_bytes.h"

namespace graphpipe::frontend {
namespace {

constexpr int kOnnxFloat = 1, kOnnxBool = 9;
constexpr std::string_view kAttention = "aten.scaled_dot_product_attention.";

class DropoutRestorer {
 public:
  explicit DropoutRestorer(GraphBody& body) : body_(body), names_(value_names(body)) {}

  /// Returns the nodes that it has put behind others.
  std::vector<OnnxNode> run() {
    std::set<std::string> have_dropout;  // calls
    for (const OnnxNode& node : body_.nodes)
      if (node.op == "Dropout") have_dropout.insert(node.exported_from);
    std::vector<OnnxNode> nodes, added;
    for (OnnxNode& node : body_.nodes) {
      const double ratio = node.op == "Softmax" && !have_dropout.contains(node.exported_from)
                               ? attention_dropout(node.exported_from)
                               : 0;
      if (ratio == 0) {
        nodes.push_back(std::move(node));
        continue;
      }
      OnnxNode dropout = dropout_behind(node, ratio);
      added.push_back(dropout);
      nodes.push_back(std::move(node));
      nodes.push_back(std::move(dropout));
    }
    body_.nodes = std::move(nodes);
    return added;
  }

 private:
  /// The readers of the softmax read this node's result.
  OnnxNode dropout_behind(OnnxNode& softmax, double ratio) {
    OnnxNode dropout;
    dropout.name = unused(softmax.outputs[0] + "/dropout");
    dropout.op = "Dropout";
    dropout.exported_from = softmax.exported_from;
    dropout.outputs = {softmax.outputs[0]};
    softmax.outputs[0] = unused(softmax.outputs[0] + "/kept");
    dropout.inputs = {softmax.outputs[0], add_scalar(dropout.name + "/ratio", kOnnxFloat, ratio),
                      add_scalar(dropout.name + "/trains", kOnnxBool, 1)};
    return dropout;
  }

  std::string add_scalar(std::string name, int onnx_type, double value) {
    Tensor& scalar = body_.initializers.emplace_back();
    scalar.name = unused(std::move(name));
    scalar.onnx_type = onnx_type;
    scalar.data.bytes = wire::element_bytes(*dtype_of_onnx(onnx_type), value);
    return scalar.name;
  }

  std::string unused(std::string name) { return unused_name(names_, std::move(name)); }

  GraphBody& body_;
  std::set<std::string> names_;  // of all values and tensors
};

}  // namespace

double attention_dropout(const std::string& exported_from) {
  const std::optional<ExportedCall> call = parse_exported_call(exported_from);
  double ratio = 0;
  const bool drops = call && call->target.starts_with(kAttention) && read_number(call->argument(4), ratio);
  return drops && ratio > 0 && ratio < 1 ? ratio : 0;
}

void restore_dropout(GraphBody& body, Diagnostics& notes) {
  const std::vector<OnnxNode> added = DropoutRestorer(body).run();
  if (added.empty()) return;
  const std::string which = added.size() == 1 ? "this attention" : text(added.size(), " attentions, this one first");
  notes.push_back({.code = Code::kLostByExport,
                   .severity = Severity::kNote,
                   .origin = ModelText(added.front().outputs[0]),
                   .message = text("the exporter's optimiser has left out the dropout of ", which, " (dropout_p=",
                                   attention_dropout(added.front().exported_from), "); it is there again"),
                   .hint = "nothing: --dropout says whether it is active"});
}

}  // namespace graphpipe::frontend
