#include "frontend/traced_divisor.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "frontend/lowering.h"

namespace graphpipe::frontend {
namespace {

bool has_batch(const ir::Shape& shape) {
  return std::ranges::any_of(shape, [](ir::Dim dim) { return !dim.is_fixed(); });
}

class DivisorFinder {
 public:
  DivisorFinder(const GraphBody& body, const ValueReaders& readers, int64_t traced)
      : body_(body), readers_(readers), traced_(traced) {
    for (const OnnxNode& node : body.nodes)
      for (const std::string& output : node.outputs) makers_.emplace(output, &node);
  }

  const OnnxNode* run() const {
    const auto found = std::ranges::find_if(body_.nodes, [&](const OnnxNode& node) {
      return node.op == "Div" && node.inputs.size() == 2 && may_hold_batch(node.inputs[1]) &&
             adds_samples_up(node.inputs[0]);
    });
    return found == body_.nodes.end() ? nullptr : &*found;
  }

 private:
  bool may_hold_batch(const std::string& divisor) const {
    const Known* const known = readers_.known_of(divisor);
    if (known == nullptr || known->elements.size() != 1 || !known->elements[0].is_fixed()) return false;
    const double number = known->elements[0].factor();
    return number >= static_cast<double>(traced_) && std::fmod(number, static_cast<double>(traced_)) == 0;
  }

  /// Whether the value, without a batch axis, comes from a sum over one by arithmetic alone.
  bool adds_samples_up(const std::string& value) const {
    static const std::set<std::string_view> arithmetic = {"Add", "Sub", "Mul", "Div", "Neg", "Cast", "Identity"};
    std::set<std::string> seen;
    std::vector<std::string> pending = {value};
    while (!pending.empty()) {
      const std::string next = std::move(pending.back());
      pending.pop_back();
      const auto maker = makers_.find(next);
      const ir::Shape* const shape = readers_.shape_of(next);
      if (maker == makers_.end() || shape == nullptr || has_batch(*shape) || !seen.insert(next).second) continue;
      const OnnxNode& node = *maker->second;
      if (is_sum(node)) {
        const ir::Shape* const of = readers_.shape_of(node.inputs[0]);
        if (of != nullptr && has_batch(*of)) return true;
      }
      if (arithmetic.contains(node.op)) pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
    }
    return false;
  }

  static bool is_sum(const OnnxNode& node) {
    if (node.inputs.empty()) return false;
    const Attribute* const reduction = node.find("reduction");
    return node.op == "ReduceSum" || (reduction != nullptr && reduction->s == "sum");
  }

  const GraphBody& body_;
  const ValueReaders& readers_;
  int64_t traced_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
};

}  // namespace

void report_traced_divisor(const GraphBody& body, const ValueReaders& readers, int64_t traced, Diagnostics& notes) {
  const OnnxNode* const found = traced < 1 ? nullptr : DivisorFinder(body, readers, traced).run();
  if (found == nullptr) return;
  notes.push_back(
      {.code = Code::kBatchNotFound,
       .severity = Severity::kWarning,
       .origin = node_label(*found),
       .message =
           text("divides a sum over the samples by ", readers.known_of(found->inputs[1])->elements[0].factor(),
                ", which may hold the batch of ", traced, " that the file fixes: it stays so with another --batch"),
       .hint = text("train with --batch ", traced, ", or ", kExportRecipe)});
}

}  // namespace graphpipe::frontend
