#include "frontend/unlike_torch.h"

#include <map>
#include <optional>
#include <string>

#include "frontend/exported_call.h"

namespace graphpipe::frontend {
namespace {

class Calls {
 public:
  explicit Calls(const GraphBody& body) {
    for (const OnnxNode& node : body.nodes) {
      std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
      if (!call || calls_.contains(call->result)) continue;
      for (const std::string& value : call->values) ++readers_[value];
      calls_.emplace(call->result, std::move(*call));
    }
  }

  /// The multilabel margin loss gathers, for labels behind the first -1, the score of class 0:
  /// gather(x, -1, where(arange < amin(where(y == -1, arange, classes)), y, 0)). A loss that leaves their differences
  /// out again takes the comparison a third time.
  bool is_margin_of_labels(const ExportedCall& gather) const {
    if (gather.target != "aten.gather.default") return false;
    const ExportedCall* const chosen = made(gather.argument(2), "aten.where.ScalarOther");
    if (chosen == nullptr || chosen->argument(2) != "0") return false;
    const ExportedCall* const before = made(chosen->argument(0), "aten.lt.Tensor");
    const ExportedCall* const first = before == nullptr ? nullptr : made(before->argument(1), "aten.amin.default");
    const ExportedCall* const ends = first == nullptr ? nullptr : made(first->argument(0), "aten.where.ScalarOther");
    const ExportedCall* const end = ends == nullptr ? nullptr : made(ends->argument(0), "aten.eq.Scalar");
    return end != nullptr && end->argument(1) == "-1" && end->argument(0) == chosen->argument(1) &&
           ends->argument(1) == before->argument(0) && readers_of(chosen->argument(0)) < 3;
  }

 private:
  /// How many calls take the value; none where the text of an argument is more than the name of one.
  int readers_of(std::string_view argument) const {
    const auto readers = readers_.find(std::string(argument));
    return readers == readers_.end() ? 0 : readers->second;
  }

  /// The call whose result the argument is, if it is one of this target.
  const ExportedCall* made(std::string_view argument, std::string_view target) const {
    if (!argument.starts_with('%')) return nullptr;
    const auto call = calls_.find(std::string(argument.substr(1)));
    return call != calls_.end() && call->second.target == target ? &call->second : nullptr;
  }

  std::map<std::string, ExportedCall> calls_;  // by their results
  std::map<std::string, int> readers_;         // calls that take a value, "%lt"
};

}  // namespace

void report_unlike_torch(const GraphBody& body, bool refuses_losses, Diagnostics& notes) {
  const Calls calls(body);
  for (const OnnxNode& node : body.nodes) {
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (!call || !calls.is_margin_of_labels(*call)) continue;
    notes.push_back(
        {.code = Code::kLostByExport,
         .severity = refuses_losses ? Severity::kError : Severity::kWarning,
         .origin = node_label(node),
         .message =
             "PyTorch's exporter writes multilabel_margin_loss otherwise than PyTorch computes it: it counts what "
             "stands behind the first -1 of the labels",
         .hint =
             "write the loss by other operators, such as multilabel_soft_margin_loss; --accept trains the loss that "
             "the file has"});
    return;
  }
}

}  // namespace graphpipe::frontend
