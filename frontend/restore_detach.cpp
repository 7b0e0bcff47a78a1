#include "frontend/restore_detach.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/import_onnx.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

/// The nodes of one call of the module, and what they compute.
struct DetachReaders {
  ExportedCall call;
  std::vector<size_t> nodes;
  std::set<std::string> results;
};

class DetachRestorer {
 public:
  DetachRestorer(GraphBody& body, const ExportSignature& signature)
      : body_(body), signature_(signature), names_(value_names(body)) {
    for (const ValueInfo& input : body.inputs) inputs_.insert(input.name);
    std::map<std::string_view, size_t> places;  // by the text of the call
    for (size_t n = 0; n < body.nodes.size(); ++n) {
      const OnnxNode& node = body.nodes[n];
      std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
      for (const std::string& output : node.outputs)
        computed_.emplace(output, call ? call->result : parameter_of(node));
      if (!call) continue;
      results_.insert(call->result);
      const auto [at, is_new] = places.try_emplace(node.exported_from, readers_.size());
      if (is_new) readers_.push_back({.call = std::move(*call), .nodes = {}, .results = {}});
      readers_[at->second].nodes.push_back(n);
      readers_[at->second].results.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  /// Returns the nodes of which it is not known what they read.
  std::vector<ModelText> run() {
    for (const DetachReaders& each : readers_) read(each);
    std::vector<OnnxNode> nodes;
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      const auto detached = detached_.find(n);
      if (detached != detached_.end())
        for (const auto& [input, value] : detached->second) detach(body_.nodes[n], input, value, nodes);
      nodes.push_back(std::move(body_.nodes[n]));
    }
    body_.nodes = std::move(nodes);
    return std::move(unknown_);
  }

 private:
  void read(const DetachReaders& of) {
    std::set<std::string> lost, detached;
    for (const std::string& argument : of.call.values)
      if (!is_in_file(argument) && !argument.starts_with("%sym_")) lost.insert(argument);  // those are sizes
    for (const std::string& argument : lost)
      if (call_of_value(argument.substr(1)) == "detach") detached.insert(argument);
    if (detached.empty() || joins_only_others(of, detached) || read_unnamed(of, lost, detached)) return;
    std::set<std::string> missing = detached;
    bool has_gradient = false;
    for (const size_t n : of.nodes) {
      read_by_place(of, n, detached, missing);
      for (const std::string& input : body_.nodes[n].inputs) has_gradient = has_gradient || trains(input);
    }
    if (!missing.empty() && has_gradient) unknown_.push_back(node_label(body_.nodes[of.nodes.front()]));
  }

  /// Joining, the exporter leaves out values without elements, such as the keys that a cache holds before its first
  /// ones: the node reads all others in their places.
  bool joins_only_others(const DetachReaders& of, const std::set<std::string>& detached) const {
    const OnnxNode& node = body_.nodes[of.nodes.front()];
    if (of.call.target != "aten.cat.default" || of.nodes.size() != 1 || (node.op != "Identity" && node.op != "Concat"))
      return false;
    std::vector<std::string> others;
    for (const std::string& argument : of.call.values)
      if (!detached.contains(argument)) others.push_back(argument);
    if (others.size() != node.inputs.size()) return false;
    for (size_t i = 0; i < others.size(); ++i)
      if (!is_named(node.inputs[i], {others[i].substr(1), signature_.tensor_of(others[i])})) return false;
    return true;
  }

  /// Where the file lacks only detached values of the call, and its nodes read as many values that it does not name,
  /// they are these.
  bool read_unnamed(const DetachReaders& of, const std::set<std::string>& lost, const std::set<std::string>& detached) {
    const std::set<std::string> named = names_in(of.call);
    std::set<std::string> unnamed;
    std::vector<std::pair<size_t, size_t>> reads;
    for (const size_t n : of.nodes)
      for (size_t i = 0; i < body_.nodes[n].inputs.size(); ++i) {
        const std::string& input = body_.nodes[n].inputs[i];
        if (!is_value(input) || of.results.contains(input) || is_named(input, named)) continue;
        unnamed.insert(input);
        reads.emplace_back(n, i);
      }
    if (lost.size() != detached.size() || unnamed.size() != lost.size()) return false;
    for (const auto& [node, input] : reads) detached_[node].emplace_back(input, detached.begin()->substr(1));
    return true;
  }

  /// Operands whose places are those of the call's arguments.
  void read_by_place(const DetachReaders& of, size_t n, const std::set<std::string>& detached,
                     std::set<std::string>& missing) {
    const OnnxNode& node = body_.nodes[n];
    const bool multiplies_first = is_product(node) && weight_argument(of.call.target) == 1u;
    const std::vector<std::string>& arguments = node.op == "Concat" ? of.call.values : of.call.arguments;
    const size_t known = has_places_of(arguments, node) ? arguments.size() : multiplies_first ? 1 : 0;
    for (size_t i = 0; i < std::min({known, arguments.size(), node.inputs.size()}); ++i) {
      if (!detached.contains(arguments[i]) || of.results.contains(node.inputs[i])) continue;
      if (is_value(node.inputs[i])) detached_[n].emplace_back(i, arguments[i].substr(1));  // else a constant
      missing.erase(arguments[i]);
    }
  }

  /// Whether all arguments that the file has stand where the node reads them: that of a mask or of a bias may not.
  bool has_places_of(const std::vector<std::string>& arguments, const OnnxNode& node) const {
    if (arguments.size() != node.inputs.size()) return false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool is_known = arguments[i].starts_with('%') && is_in_file(arguments[i]);
      if (is_known && !is_named(node.inputs[i], {arguments[i].substr(1), signature_.tensor_of(arguments[i])}))
        return false;
    }
    return true;
  }

  /// The parameter of which restore_parameters() makes another form.
  std::string parameter_of(const OnnxNode& node) const {
    const bool is_form = !node.inputs.empty() && signature_.lists_parameter(node.inputs[0]);
    return is_form ? node.inputs[0] : std::string();
  }

  bool is_in_file(const std::string& argument) const {
    const std::string value = argument.substr(1);
    return names_.contains(value) || results_.contains(value) || !signature_.tensor_of(argument).empty();
  }

  std::set<std::string> names_in(const ExportedCall& call) const {
    std::set<std::string> names;
    for (const std::string& argument : call.values) names.insert({argument.substr(1), signature_.tensor_of(argument)});
    names.erase("");
    return names;
  }

  /// By its own name, or as the result of the call that computes it, or as the parameter that it is a form of.
  bool is_named(const std::string& value, const std::set<std::string>& names) const {
    const auto made = computed_.find(value);
    return names.contains(value) || (made != computed_.end() && !made->second.empty() && names.contains(made->second));
  }

  bool trains(const std::string& value) const { return computed_.contains(value) || signature_.lists_parameter(value); }
  bool is_value(const std::string& name) const {
    return computed_.contains(name) || inputs_.contains(name) || signature_.is_parameter.contains(name);
  }

  /// What is no parameter and computed by no node has no gradient to block.
  void detach(OnnxNode& node, size_t input, const std::string& value, std::vector<OnnxNode>& nodes) {
    const std::string from = node.inputs[input];
    if (!trains(from)) return;
    std::string& detached = made_[from];
    if (detached.empty()) {
      detached = unused_name(names_, value);
      OnnxNode& identity = nodes.emplace_back();
      identity.name = detached;
      identity.op = "Identity";
      identity.inputs = {from};
      identity.outputs = {detached};
      identity.exported_from =
          text("%", value, " : [num_users=1] = call_function[target=torch.ops.aten.detach.default](args = (%", from,
               ",), kwargs = {})");
    }
    node.inputs[input] = detached;
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  std::set<std::string> names_, inputs_, results_;  // of all values and tensors; of the graph; of calls
  std::map<std::string, std::string> computed_;     // what nodes compute, and the results of their calls, or parameters
  std::vector<DetachReaders> readers_;
  std::map<size_t, std::vector<std::pair<size_t, std::string>>>
      detached_;                             // of nodes: inputs, and what calls name them
  std::map<std::string, std::string> made_;  // values, and what they are detached
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
