#include "frontend/flat_places.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "frontend/lowering.h"

namespace graphpipe::frontend {
namespace {

using KnownOf = std::function<const Known*(const std::string&)>;

class PlaceFinder {
 public:
  PlaceFinder(const GraphBody& body, const KnownOf& known_of) : body_(body), known_of_(known_of) {
    for (const OnnxNode& node : body.nodes)
      for (const std::string& output : node.outputs) makers_.emplace(output, &node);
  }

  /// The first look-up in a flattened tensor whose later indices count from the end, or null.
  const OnnxNode* run() const {
    const auto found = std::ranges::find_if(body_.nodes, [&](const OnnxNode& node) {
      return node.op == "Gather" && node.inputs.size() == 2 && maker(node.inputs[0], "Flatten") != nullptr &&
             counts_from_end(node.inputs[1]);
    });
    return found == body_.nodes.end() ? nullptr : &*found;
  }

 private:
  const OnnxNode* maker(const std::string& value, std::string_view op) const {
    const auto found = makers_.find(value);
    return found != makers_.end() && found->second->op == op ? found->second : nullptr;
  }

  /// Of (k + j * columns) + i * rows: k or j. A negative i alone names the right place, counted from the end of all.
  bool counts_from_end(const std::string& places) const {
    const OnnxNode* sum = sum_with_index(places);
    while (sum != nullptr) {
      const std::string& before = sum->inputs[0];
      sum = sum_with_index(before);
      if (has_negative(sum == nullptr ? before : maker(sum->inputs[1], "Mul")->inputs[0])) return true;
    }
    return false;
  }

  /// The node that adds the product of an index and a size, or null. TorchScript takes the size from the shape, or has
  /// it computed beforehand; a number that the module's own arithmetic multiplies with is a Constant.
  const OnnxNode* sum_with_index(const std::string& value) const {
    const OnnxNode* const sum = maker(value, "Add");
    const OnnxNode* const product = sum == nullptr ? nullptr : maker(sum->inputs[1], "Mul");
    return product == nullptr || maker(product->inputs[1], "Constant") != nullptr ? nullptr : sum;
  }

  bool has_negative(const std::string& value) const {
    const Known* const known = known_of_(value);
    return known != nullptr && !ir::is_floating(known->dtype) &&
           std::ranges::any_of(known->elements, [](const Number& number) { return number.whole < 0; });
  }

  const GraphBody& body_;
  const KnownOf& known_of_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
};

}  // namespace

void report_flat_places(const GraphBody& body, const KnownOf& known_of, bool refuses_losses, Diagnostics& notes) {
  const OnnxNode* const found = PlaceFinder(body, known_of).run();
  if (found == nullptr) return;
  notes.push_back({.code = Code::kLostByExport,
                   .severity = refuses_losses ? Severity::kError : Severity::kWarning,
                   .origin = node_label(*found),
                   .message = "looks up places by several indices of which a later one counts from the end, x[i, -1]: "
                              "TorchScript has made other places of them in the flattened tensor",
                   .hint = text(kExportRecipe, ", or count from the start; --accept trains the file as it is")});
}

}  // namespace graphpipe::frontend
