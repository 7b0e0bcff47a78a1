#include "frontend/without_gradient.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/gradient_ends.h"
#include "frontend/import_onnx.h"
#include "frontend/lowering.h"

namespace graphpipe::frontend {
namespace {

/// What the lines of a part's code say of it.
struct GeneratedPart {
  bool names_parameters = false, numbers_parameters = false;
};

/// "42" of a line of generated code that is written in calls of the exported program; empty for other lines, and for
/// those of a branch of torch.cond that is always taken, which the exporter's optimiser has put among the others.
std::string_view part_of(const OnnxNode& node) {
  constexpr std::string_view kBegin = "File \"<eval_with_key>.", kCall = " = torch.ops.aten.";
  const std::string_view code = node.code;
  if (!code.starts_with(kBegin) || code.find(kCall) == code.npos || node.name.find("cond__") != std::string::npos)
    return {};
  const size_t end = code.find('"', kBegin.size());
  return end == code.npos ? std::string_view() : code.substr(kBegin.size(), end - kBegin.size());
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_of(kOfNames); at != line.npos; at = line.find_first_of(kOfNames, at)) {
    const size_t end = std::min(line.find_first_not_of(kOfNames, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

/// "arg3_1"
bool is_number_of_argument(std::string_view word) {
  constexpr std::string_view kBegin = "arg", kEnd = "_1";
  return word.size() > kBegin.size() + kEnd.size() && word.starts_with(kBegin) && word.ends_with(kEnd) &&
         std::ranges::all_of(word.substr(kBegin.size(), word.size() - kBegin.size() - kEnd.size()),
                             [](char c) { return c >= '0' && c <= '9'; });
}

class PartFinder {
 public:
  PartFinder(const GraphBody& body, const ExportSignature& signature, const ParameterRules& rules) : body_(body) {
    for (const Tensor& tensor : body.initializers)
      if (signature.lists_parameter(tensor.name) && rules.trains(tensor.name).value_or(true))
        trains_.insert(tensor.name);
    std::set<std::string_view> inputs;
    for (const auto& [input, name] : signature.tensor_of_input) inputs.insert(input);
    for (const OnnxNode& node : body.nodes) {
      const std::string_view number = part_of(node);
      if (number.empty()) {
        has_others_ = has_others_ || !node.code.empty();
        continue;
      }
      GeneratedPart& part = parts_[number];
      for (const std::string_view word : words_of(node.code)) {
        part.names_parameters = part.names_parameters || inputs.contains(word);
        part.numbers_parameters = part.numbers_parameters || is_number_of_argument(word);
      }
      part.numbers_parameters = part.numbers_parameters || casts_unasked(node);
    }
  }

  /// The first node that computes, within a part, what trains and is read outside of it: of a part that computes no
  /// gradients if there is one, else of one that may. Code that holds the whole program is no part of it.
  std::optional<std::pair<const OnnxNode*, GeneratedPart>> run() {
    if (parts_.empty() || !has_others_) return std::nullopt;
    for (const OnnxNode& node : body_.nodes) follow(node);
    std::optional<std::pair<const OnnxNode*, GeneratedPart>> found;
    const auto take = [&](const std::string& value, std::string_view reader) {
      const auto made = made_.find(value);
      if (made == made_.end()) return;
      const std::string_view number = part_of(*made->second);
      if (number == reader) return;
      const GeneratedPart& part = parts_.at(number);
      if (!part.numbers_parameters && (!found || (part.names_parameters && !found->second.names_parameters)))
        found.emplace(made->second, part);
    };
    const std::set<std::string> reached = reached_by_gradients(body_);
    for (const OnnxNode& node : body_.nodes) {
      const auto is_reached = [&](const std::string& output) { return reached.contains(output); };
      if (ends_gradients(node) || std::ranges::none_of(node.outputs, is_reached)) continue;
      for (const std::string& input : node.inputs) take(input, part_of(node));
    }
    return found;
  }

 private:
  /// Autocast adds casts to the call of a line.
  static bool casts_unasked(const OnnxNode& node) {
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    return call && call->target == "aten._to_copy.default" && node.code.find("aten._to_copy") == node.code.npos &&
           node.code.find("aten.to.") == node.code.npos;
  }

  void follow(const OnnxNode& node) {
    const bool reads_trained =
        std::ranges::any_of(node.inputs, [&](const std::string& input) { return trains_.contains(input); });
    if (!reads_trained || ends_gradients(node)) return;
    const size_t count = node.op == "TopK" || node.op == "MaxPool" ? 1 : node.outputs.size();  // the rest are places
    for (size_t i = 0; i < std::min(count, node.outputs.size()); ++i) {
      trains_.insert(node.outputs[i]);
      if (!part_of(node).empty()) made_.emplace(node.outputs[i], &node);
    }
  }

  const GraphBody& body_;
  std::map<std::string_view, GeneratedPart> parts_;  // by the number of their code
  bool has_others_ = false;                          // calls of no part
  std::set<std::string> trains_;                     // parameters, and what is computed from them
  std::map<std::string, const OnnxNode*> made_;      // of these values what parts compute
};

}  // namespace

void report_without_gradient(const GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                             bool refuses_losses, Diagnostics& notes) {
  const auto found = PartFinder(body, signature, rules).run();
  if (!found) return;
  const auto& [node, part] = *found;
  const std::string_view cure = "export with graphpipe.export, which knows";
  if (part.names_parameters)
    notes.push_back({.code = Code::kLostByExport,
                     .severity = refuses_losses ? Severity::kError : Severity::kWarning,
                     .origin = node_label(*node),
                     .message = "the module computes this without gradients (torch.no_grad(), or a reentrant "
                                "checkpoint), which the file does not hold: it would train",
                     .hint = text(cure,
                                  "; or freeze the parameters that it is computed from; --accept trains the file "
                                  "as it is, which is right for a checkpoint")});
  else
    notes.push_back({.code = Code::kLostByExport,
                     .severity = Severity::kWarning,
                     .origin = node_label(*node),
                     .message = "the module computes this under torch.no_grad(), or under torch.autocast(), and the "
                                "file does not say under which: it trains",
                     .hint = text(cure, "; nothing where the code has no no_grad() there")});
}

}  // namespace graphpipe::frontend
