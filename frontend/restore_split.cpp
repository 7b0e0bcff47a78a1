#include "frontend/restore_split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/body_reads.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

/// A node, and which of its inputs.
using Place = std::pair<size_t, size_t>;

class SplitRestorer {
 public:
  SplitRestorer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules, Restoration& restored)
      : body_(body),
        signature_(signature),
        rules_(rules),
        restored_(restored),
        names_(value_names(body)),
        inner_(inner_reads(body)) {
    for (size_t i = 0; i < body.initializers.size(); ++i) tensors_.emplace(body.initializers[i].name, i);
    for (const ValueInfo& output : body.outputs) inner_.insert(output.name);
    for (size_t n = 0; n < body.nodes.size(); ++n)
      for (size_t i = 0; i < body.nodes[n].inputs.size(); ++i) readers_[body.nodes[n].inputs[i]].emplace_back(n, i);
  }

  void run() {
    for (size_t n = 0; n < body_.nodes.size(); ++n)
      if (is_split(body_.nodes[n])) restore(n);
    put_in_front(body_, restored_, std::move(nodes_), std::move(added_), {});
  }

 private:
  bool is_split(const OnnxNode& node) const {
    const auto is_tensor = [&](const std::string& input) { return tensors_.contains(input); };
    return node.op == "Split" && node.exported_from.empty() && std::ranges::all_of(node.inputs, is_tensor) &&
           signature_.lists_parameter(node.inputs[0]) &&
           std::ranges::none_of(node.outputs, [&](const std::string& output) { return inner_.contains(output); });
  }

  /// What one module reads of the parts: where, and through which transpose, if any.
  struct Use {
    size_t part = 0;
    Place place;
    std::optional<size_t> turn;
  };

  void restore(size_t split) {
    const std::vector<std::string> parts = body_.nodes[split].outputs;
    std::map<std::string, std::vector<Use>> uses;  // by the parameter that the module has
    for (size_t k = 0; k < parts.size(); ++k)
      for (const Place& place : readers_[parts[k]]) {
        const OnnxNode& reader = body_.nodes[place.first];
        if (reader.op != "Transpose") {
          note(split, {k, place, std::nullopt}, uses);
          continue;
        }
        // A product reads the transpose of a part, of which the optimiser keeps one as well.
        if (inner_.contains(reader.outputs[0])) return;
        for (const Place& behind : readers_[reader.outputs[0]]) note(split, {k, behind, place.first}, uses);
      }
    for (const auto& [name, all] : uses)
      if (reads_all(all, parts)) move(split, name, all);
  }

  void note(size_t split, const Use& use, std::map<std::string, std::vector<Use>>& uses) const {
    const OnnxNode& reader = body_.nodes[use.place.first];
    const std::string& from = body_.nodes[split].inputs[0];
    const size_t rank = body_.initializers[tensors_.at(from)].dims.size();
    const std::string name = in_projection_of(reader.module, rank == 2);
    const bool is_other = name != from && signature_.lists_parameter(name) && !tensors_.contains(name);
    if (is_other && !reader.exported_from.empty() && !rules_.tied(name).value_or(false)) uses[name].push_back(use);
  }

  /// Else the optimiser has merged a product with that of the other module as well, as of two layers that read one
  /// memory, and what the module reads of the rest is not told.
  static bool reads_all(const std::vector<Use>& uses, const std::vector<std::string>& parts) {
    std::set<size_t> read;
    for (const Use& use : uses) read.insert(use.part);
    return read.size() == parts.size();
  }

  void move(size_t split, const std::string& name, const std::vector<Use>& uses) {
    const std::vector<std::string> parts =
        add_split(body_.nodes[split], body_.initializers[tensors_.at(body_.nodes[split].inputs[0])], name);
    std::map<size_t, std::string> turned;  // by the part
    for (const Use& use : uses) {
      std::string value = parts[use.part];
      if (use.turn) {
        std::string& transposed = turned[use.part];
        if (transposed.empty()) transposed = add_transpose(body_.nodes[*use.turn], value);
        value = transposed;
      }
      body_.nodes[use.place.first].inputs[use.place.second] = value;
    }
  }

  std::string add_transpose(const OnnxNode& turn, const std::string& part) {
    OnnxNode& node = nodes_.emplace_back(turn);
    node.name = unused_name(names_, part + "/transposed");
    node.inputs = {part};
    node.outputs = {node.name};
    return node.name;
  }

  std::vector<std::string> add_split(const OnnxNode& split, const Tensor& tensor, const std::string& name) {
    const auto source = restored_.sources.find(tensor.name);
    restored_.sources.emplace(name, source == restored_.sources.end() ? tensor : source->second);
    restored_.names.push_back(name);
    added_.push_back(tensor);
    added_.back().name = name;
    names_.insert(name);
    OnnxNode& node = nodes_.emplace_back(split);
    node.name = unused_name(names_, name + "/split");
    node.inputs[0] = name;
    for (std::string& output : node.outputs) output = unused_name(names_, name + "/part");
    return node.outputs;
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  Restoration& restored_;
  std::set<std::string> names_;                        // of all values and tensors
  std::set<std::string> inner_;                        // outputs, and what bodies of nodes read
  std::map<std::string, size_t> tensors_;              // the place of each
  std::map<std::string, std::vector<Place>> readers_;  // of each value
  std::vector<Tensor> added_;
  std::vector<OnnxNode> nodes_;  // in front of the others: they read tensors alone
};

}  // namespace

void restore_split(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                   Restoration& restored) {
  SplitRestorer(body, signature, rules, restored).run();
}

std::string in_projection_of(const std::string& module, bool is_weight) {
  return text(module, module.empty() ? "" : ".", is_weight ? "in_proj_weight" : "in_proj_bias");
}

std::string split_for_other(const GraphBody& body, const std::vector<std::string>& names) {
  std::map<std::string, std::string> parts;  // and their transposes: of what
  for (const OnnxNode& node : body.nodes) {
    if (node.op == "Split" && node.exported_from.empty())
      for (const std::string& part : node.outputs) parts.emplace(part, node.inputs[0]);
    for (const std::string& input : node.inputs) {
      const auto part = parts.find(input);
      if (part == parts.end()) continue;
      if (node.op == "Transpose") parts.emplace(node.outputs[0], part->second);
      const std::string name = in_projection_of(node.module, part->second.ends_with("weight"));
      if (name != part->second && std::ranges::find(names, name) != names.end()) return part->second;
    }
  }
  return {};
}

}  // namespace graphpipe::frontend
