#include "frontend/separate_memories.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/restore_split.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

class MemorySeparator {
 public:
  MemorySeparator(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules, Restoration& restored)
      : body_(body),
        signature_(signature),
        rules_(rules),
        restored_(restored),
        names_(value_names(body)),
        owners_(body.nodes.size()),
        copies_(body.nodes.size()) {
    for (const Tensor& tensor : body.initializers) tensors_.insert(tensor.name);
    for (size_t n = 0; n < body.nodes.size(); ++n)
      for (const std::string& output : body.nodes[n].outputs) makers_.emplace(output, n);
  }

  void run() {
    for (size_t n = 0; n < body_.nodes.size(); ++n) owners_[n] = owner_of(body_.nodes[n]);
    const size_t count = body_.nodes.size();
    for (size_t n = 0; n < count; ++n) separate_reads(n);
    join_nodes();
  }

 private:
  /// The attention that computes a node from parts of its parameters; or empty.
  std::string owner_of(const OnnxNode& node) const {
    if (!is_split_of_attention(node) && !signature_.lists_parameter(in_projection_of(node.module, true))) return {};
    const bool is_computed = std::ranges::any_of(node.inputs, [&](const std::string& input) {
      const auto maker = makers_.find(input);
      return maker != makers_.end() &&
             (is_split_of_attention(body_.nodes[maker->second]) || owners_[maker->second] == node.module);
    });
    return is_computed ? node.module : std::string();
  }

  /// Whether the node splits a parameter, without a call that would say whose.
  bool is_split_of_attention(const OnnxNode& node) const {
    return node.op == "Split" && node.exported_from.empty() && signature_.lists_parameter(node.inputs[0]);
  }

  bool has_lost_weight(const std::string& module) const {
    const std::string weight = in_projection_of(module, true);
    return signature_.lists_parameter(weight) && !tensors_.contains(weight) && !rules_.tied(weight).value_or(false);
  }

  void separate_reads(size_t n) {
    const OnnxNode& node = body_.nodes[n];
    if (!has_lost_weight(node.module) || copied_ > body_.nodes.size()) return;
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (!call) return;
    for (std::string& input : body_.nodes[n].inputs) {
      const auto maker = makers_.find(input);
      if (maker == makers_.end() || owners_[maker->second].empty() || owners_[maker->second] == node.module) continue;
      if (is_merged(*call, input, body_.nodes[maker->second])) input = value_for(node.module, input);
    }
  }

  /// Whether a node of the call reads a value in the place of its own, which nothing makes: one of the same kind, or
  /// one between the operators of the same call. Another may as well be the value that the call takes, of which a copy
  /// or a dropout has been left out.
  bool is_merged(const ExportedCall& call, const std::string& read, const OnnxNode& maker) const {
    const auto is_lost_twin = [&](const std::string& value) {
      return call_of_value(value.substr(1)) == call_of_value(read) && !makers_.contains(value.substr(1));
    };
    if (std::ranges::find(call.values, "%" + read) != call.values.end()) return false;
    if (!is_anonymous(read)) return std::ranges::any_of(call.values, is_lost_twin);
    const std::optional<ExportedCall> other = parse_exported_call(maker.exported_from);
    return other && other->target == call.target;
  }

  /// The value that this module has in the place of another attention's.
  std::string value_for(const std::string& module, const std::string& value) {
    const std::set<size_t> nodes = nodes_behind(module, value);
    copied_ += nodes.size();
    if (copied_ > body_.nodes.size()) return value;
    for (const size_t n : nodes) {
      OnnxNode copy = body_.nodes[n];
      for (std::string& input : copy.inputs)
        if (const auto own = values_.find({module, input}); own != values_.end()) input = own->second;
      for (std::string& output : copy.outputs) {
        std::string own = unused_name(names_, text(module, "/", output));
        values_.emplace(std::pair(module, output), own);
        output = std::move(own);
      }
      copy.name = copy.outputs[0];
      copy.module = module;
      copies_[n].push_back(std::move(copy));
    }
    return values_.at({module, value});
  }

  /// Those that make a value from parts of the parameters and are not copied yet, in their order.
  std::set<size_t> nodes_behind(const std::string& module, const std::string& value) const {
    std::set<size_t> nodes;
    std::vector<std::string> open = {value};
    while (!open.empty()) {
      const std::string next = std::move(open.back());
      open.pop_back();
      const auto maker = makers_.find(next);
      if (maker == makers_.end() || owners_[maker->second].empty() || values_.contains({module, next})) continue;
      if (!nodes.insert(maker->second).second) continue;
      std::ranges::copy(body_.nodes[maker->second].inputs, std::back_inserter(open));
    }
    return nodes;
  }

  /// Each copy behind the node that it is of, whose inputs and theirs come before.
  void join_nodes() {
    std::vector<OnnxNode> nodes;
    std::vector<std::optional<size_t>> places;
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      nodes.push_back(std::move(body_.nodes[n]));
      places.push_back(restored_.nodes[n]);
      for (OnnxNode& copy : copies_[n]) nodes.push_back(std::move(copy));
      places.resize(nodes.size());
    }
    body_.nodes = std::move(nodes);
    restored_.nodes = std::move(places);
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  Restoration& restored_;
  std::set<std::string> names_, tensors_;
  size_t copied_ = 0;  // no more than there are nodes, of which keys and values are a part in every layer
  std::map<std::string, size_t> makers_;                               // of values: the node
  std::vector<std::string> owners_;                                    // of nodes: the attention, or none
  std::vector<std::vector<OnnxNode>> copies_;                          // behind each node
  std::map<std::pair<std::string, std::string>, std::string> values_;  // by module and the value of another
};

}  // namespace

void separate_memories(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                       Restoration& restored) {
  MemorySeparator(body, signature, rules, restored).run();
}

}  // namespace graphpipe::frontend
