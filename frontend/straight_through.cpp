#include "frontend/straight_through.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/lowering.h"

namespace graphpipe::frontend {
namespace {

struct Found {
  std::vector<const OnnxNode*> sums;
  /// Whether each is what its call says.
  bool is_said = true;
};

class SumFinder {
 public:
  explicit SumFinder(const GraphBody& body) : body_(body) {
    for (const OnnxNode& node : body.nodes)
      for (const std::string& output : node.outputs) makers_.emplace(output, &node);
  }

  Found run(const std::function<bool(const std::string&)>& is_floating) const {
    Found found;
    for (const OnnxNode& node : body_.nodes) {
      const OnnxNode* const difference = node.inputs.size() == 2 ? cancelled(node) : nullptr;
      if (difference == nullptr || !is_floating(node.outputs[0])) continue;
      found.sums.push_back(&node);
      found.is_said = found.is_said && says_so(node, *difference);
    }
    return found;
  }

 private:
  const OnnxNode* maker(const std::string& value, std::string_view op) const {
    const auto found = makers_.find(value);
    const bool is_that = found != makers_.end() && found->second->op == op && found->second->inputs.size() == 2;
    return is_that ? found->second : nullptr;
  }

  /// That of x + (y - x) and (y - x) + x, and of x - (x - y), or null.
  const OnnxNode* cancelled(const OnnxNode& node) const {
    const std::string &first = node.inputs[0], &second = node.inputs[1];
    if (node.op == "Sub") return difference(second, 0, first);
    if (node.op != "Add") return nullptr;
    const OnnxNode* const behind = difference(second, 1, first);
    return behind != nullptr ? behind : difference(first, 1, second);
  }

  /// The node that computes the value, where that is a difference with x at this place.
  const OnnxNode* difference(const std::string& value, size_t place, const std::string& x) const {
    const OnnxNode* const made = maker(value, "Sub");
    return made != nullptr && made->inputs[place] == x && made->inputs[1 - place] != x ? made : nullptr;
  }

  /// A call that takes something else than the difference has taken a copy of it, perhaps detached (clone).
  static bool says_so(const OnnxNode& sum, const OnnxNode& difference) {
    const std::optional<ExportedCall> outer = parse_exported_call(sum.exported_from),
                                      inner = parse_exported_call(difference.exported_from);
    if (!outer || !inner || inner->result.empty()) return outer.has_value();
    return std::ranges::find(outer->values, "%" + inner->result) != outer->values.end();
  }

  const GraphBody& body_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
};

}  // namespace

void report_straight_through(const GraphBody& body, const std::function<bool(const std::string&)>& is_floating,
                             bool refuses_losses, Diagnostics& notes) {
  const Found found = SumFinder(body).run(is_floating);
  if (found.sums.empty()) return;
  const size_t others = found.sums.size() - 1;
  const std::string cure =
      found.is_said ? "export with graphpipe.export, which says so; of its files, and where the module does neither, "
                      "there is nothing to do"
                    : text(kExportRecipe, ", or with graphpipe.export; --accept trains the file as it is");
  notes.push_back({.code = Code::kLostByExport,
                   .severity = refuses_losses && !found.is_said ? Severity::kError : Severity::kWarning,
                   .origin = node_label(*found.sums.front()),
                   .message = text("adds x and y - x, which is y", others == 0 ? "" : text(", as ", others, " more do"),
                                   ": modules do so with one of them detached or computed under no_grad(), for a "
                                   "straight-through gradient, ",
                                   found.is_said ? "of which the file says nothing: the gradient of y trains"
                                                 : "which the exporter has lost: another gradient trains"),
                   .hint = cure});
}

}  // namespace graphpipe::frontend
