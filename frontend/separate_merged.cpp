#include "frontend/separate_merged.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/equal_parts.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/merged_readers.h"
#include "frontend/told_parameters.h"
#include "support/text.h"
#include "wire/element_bytes.h"

namespace graphpipe::frontend {
namespace {

/// Calls that the exporter's optimiser does not leave out itself, so that one without a node has been merged.
constexpr std::array<std::string_view, 4> kCalls = {"expand", "group_norm", "layer_norm", "rms_norm"};

using Place = std::pair<size_t, size_t>;  // a node, and which of its inputs

/// "encoder.norm." and "weight" of "encoder.norm.weight".
std::pair<std::string, std::string> split_member(const std::string& name) {
  const size_t begin = name.rfind('.') + 1;
  return {name.substr(0, begin), name.substr(begin)};
}

/// "encoder." of "encoder.norm."; nothing of the whole module.
std::optional<std::string> parent_of(const std::string& module) {
  if (module.empty()) return std::nullopt;
  return split_member(module.substr(0, module.size() - 1)).first;
}

/// The text of a call with other values in the place of some.
std::string with_values(std::string_view call, const std::map<std::string, std::string>& values) {
  std::string result;
  while (!call.empty()) {
    const size_t at = std::min(call.find('%'), call.size());
    result += call.substr(0, at);
    call.remove_prefix(at);
    const size_t end = std::min(call.find_first_of(" ,)]}"), call.size());
    const auto other = values.find(std::string(call.substr(0, end)));
    result += other == values.end() ? call.substr(0, end) : std::string_view(other->second);
    call.remove_prefix(end);
  }
  return result;
}

/// A value that nodes read as that of another name.
struct Lost {
  std::string value;
  std::vector<Place> places;
};

/// What a line of code reads. Two values on one would be of two layers, or of one module that is applied twice, but for
/// those that it joins.
struct Line {
  std::set<std::string> values;
  std::set<size_t> nodes;
};

/// One that is given back.
struct Proposal {
  std::string known;
  Lost lost;
  std::map<std::string, std::string> parameters;  // those of the known value, and which are taken for them
};

class Separator {
 public:
  Separator(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
            const ElementsOf& elements_of)
      : body_(body), signature_(signature), rules_(rules), elements_of_(elements_of), inner_(inner_reads(body)) {
    for (size_t i = 0; i < body.initializers.size(); ++i) tensors_.emplace(body.initializers[i].name, i);
    for (const auto& [name, place] : tensors_) made_.insert(name);
    for (const ValueInfo& input : body.inputs) made_.insert(input.name);
    for (const auto& [input, tensor] : signature.tensor_of_input) input_of_.emplace(tensor, "%" + input);
    for (size_t n = 0; n < body.nodes.size(); ++n) {
      const OnnxNode& node = body.nodes[n];
      calls_.push_back(parse_exported_call(node.exported_from));
      made_.insert(node.outputs.begin(), node.outputs.end());
      if (calls_.back()) made_.insert(calls_.back()->result);
      for (size_t i = 0; i < node.inputs.size(); ++i) readers_[node.inputs[i]].emplace_back(n, i);
    }
    collect_untold();
  }

  Separation run() {
    propose_all();
    drop_doubtful();
    std::map<std::string, const Proposal*> of_node;
    for (const Proposal& each : proposals_) {
      of_node.emplace(each.known, &each);
      for (const auto& [node, input] : each.lost.places) body_.nodes[node].inputs[input] = each.lost.value;
      SeparatedValue value{.name = each.lost.value, .parameters = {}};
      for (const auto& [known, parameter] : each.parameters) value.parameters.push_back(parameter);
      separation_.values.push_back(std::move(value));
    }
    const size_t count = body_.initializers.size();
    for (size_t i = 0; i < count; ++i)
      if (const auto each = of_node.find(body_.initializers[i].name); each != of_node.end())
        add_tensor(i, *each->second);
    add_nodes(of_node);
    return std::move(separation_);
  }

 private:
  /// The parameters that may be meant: of which the file tells nothing.
  void collect_untold() {
    const std::set<std::string> told = told_parameters(body_, signature_);
    for (const auto& [name, is_parameter] : signature_.is_parameter) {
      if (!is_parameter || told.contains(name) || made_.contains(name) || !input_of_.contains(name) ||
          rules_.tied(name).value_or(false))
        continue;
      const auto& [module, member] = split_member(name);
      untold_[parent_of(module)][module].insert(member);
    }
  }

  void propose_all() {
    for (const Tensor& tensor : body_.initializers)
      if (const auto note = body_.folded_from.find(tensor.name); note != body_.folded_from.end())
        propose(tensor.name, parse_names(note->second), {tensor.name});
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      const OnnxNode& node = body_.nodes[n];
      if (!calls_[n] || node.outputs.size() != 1 || node.outputs[0] != calls_[n]->result) continue;
      std::vector<std::string> parameters;
      for (const std::string& value : calls_[n]->values)
        if (std::string name = signature_.tensor_of(value); signature_.lists_parameter(name))
          parameters.push_back(std::move(name));
      std::vector<std::string> read;
      std::ranges::copy_if(node.inputs, std::back_inserter(read),
                           [&](const std::string& input) { return signature_.lists_parameter(input); });
      // One that is read by another node of the call would go on being that of both.
      if (read.size() == parameters.size()) propose(node.outputs[0], parameters, read);
    }
  }

  /// `from` may have other names than those of parameters; `tensors` have the elements of these.
  void propose(const std::string& known, const std::vector<std::string>& from,
               const std::vector<std::string>& tensors) {
    if (std::ranges::find(kCalls, call_of_value(known)) == kCalls.end()) return;
    std::set<std::string> parameters;
    std::ranges::copy_if(from, std::inserter(parameters, parameters.end()),
                         [&](const std::string& name) { return signature_.lists_parameter(name); });
    if (parameters.empty()) return;
    std::optional<Lost> lost = lost_value(known);
    if (!lost) return;
    const std::optional<std::string> reader = reader_elsewhere(known, *lost, *parameters.begin());
    auto others = reader && parameters.size() == 1 ? other_of(*reader, *parameters.begin()) : others_like(parameters);
    if (!others || !std::ranges::all_of(tensors, [&](const std::string& name) { return is_filled(name); })) return;
    proposals_.push_back({.known = known, .lost = std::move(*lost), .parameters = std::move(*others)});
  }

  /// Whether the tensor has one number everywhere, as two parameters may begin. Numbers that were drawn, or trained,
  /// are equal only where one parameter is read twice.
  bool is_filled(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return false;
    const Tensor& tensor = body_.initializers[found->second];
    const auto dtype = dtype_of_onnx(tensor.onnx_type);
    if (!dtype || wire::find_element_type(*dtype)->packed != 1) return false;
    const std::optional<std::string> elements = elements_of_(tensor);
    return elements && is_uniform(*elements, static_cast<size_t>(ir::bytes_per_element(*dtype)));
  }

  /// The only other value that nodes take where they read this one.
  std::optional<Lost> lost_value(const std::string& known) const {
    const auto places = readers_.find(known);
    if (places == readers_.end() || inner_.contains(known)) return std::nullopt;
    Lost lost;
    std::map<std::pair<std::string_view, std::string_view>, Line> lines;  // by module and place
    for (const Place& place : places->second) {
      const std::optional<std::string> value = value_read(place, known);
      if (!value || (*value != known && !lost.value.empty() && *value != lost.value)) return std::nullopt;
      const OnnxNode& node = body_.nodes[place.first];
      Line& line = lines[{node.module, place_of(node.code)}];
      line.values.insert(*value);
      line.nodes.insert(place.first);
      if (line.values.size() > 1 && (line.nodes.size() > 1 || node.op != "Concat")) return std::nullopt;
      if (*value == known) continue;
      lost.value = *value;
      lost.places.push_back(place);
    }
    return lost.value.empty() ? std::nullopt : std::optional(std::move(lost));
  }

  std::optional<std::string> value_read(const Place& place, const std::string& known) const {
    const auto& [n, input] = place;
    const OnnxNode& node = body_.nodes[n];
    if (!calls_[n]) return std::nullopt;
    const std::vector<std::string>& taken = calls_[n]->values;
    const auto is_it = [&](const std::string& value) {
      const std::string name = value.substr(1);
      return name == known || (call_of_value(name) == call_of_value(known) && !made_.contains(name));
    };
    if (node.op == "Concat" && taken.size() == node.inputs.size())
      return is_it(taken[input]) ? std::optional(taken[input].substr(1)) : std::nullopt;
    const std::set<std::string> values(taken.begin(), taken.end());
    if (std::ranges::count(node.inputs, known) != 1 || std::ranges::count_if(values, is_it) != 1) return std::nullopt;
    return std::ranges::find_if(values, is_it)->substr(1);
  }

  /// The module of which the code reads the value, if that of another reads the known one: its own, of which the
  /// parameter is. Nothing of layers, which are called within the modules that they are part of.
  std::optional<std::string> reader_elsewhere(const std::string& known, const Lost& lost,
                                              const std::string& parameter) const {
    const std::string own = split_member(parameter).first;
    if (call_of_value(known) != "expand") return std::nullopt;
    std::set<std::string> of_known, of_lost;
    for (const Place& place : readers_.at(known)) {
      const bool is_lost = std::ranges::find(lost.places, place) != lost.places.end();
      const std::string& module = body_.nodes[place.first].module;
      (is_lost ? of_lost : of_known).insert(module.empty() ? module : module + ".");
    }
    if (of_known != std::set{own} || of_lost.size() != 1 || of_lost.contains(own)) return std::nullopt;
    return *of_lost.begin();
  }

  /// The parameter of that module that may be meant: the one of this name, or the only one.
  std::optional<std::map<std::string, std::string>> other_of(const std::string& module, const std::string& parameter) {
    const std::set<std::string>& untold = untold_of(module);
    const std::string member = split_member(parameter).second;
    if (!untold.contains(member) && untold.size() != 1) return std::nullopt;
    return {{{parameter, module + (untold.contains(member) ? member : *untold.begin())}}};
  }

  /// The only parameters beside these that may be meant: of modules beside theirs, or of the same one.
  std::optional<std::map<std::string, std::string>> others_like(const std::set<std::string>& parameters) {
    const std::string module = split_member(*parameters.begin()).first;
    std::set<std::string> members;
    for (const std::string& name : parameters) {
      const auto& [of, member] = split_member(name);
      if (of != module) return std::nullopt;
      members.insert(member);
    }
    std::vector<std::map<std::string, std::string>> found;
    for (const std::string& beside : modules_beside(module, members)) {
      auto& others = found.emplace_back();
      for (const std::string& member : members) others.emplace(module + member, beside + member);
    }
    if (members.size() == 1)
      for (const std::string& member : untold_of(module)) {
        found.push_back({{*parameters.begin(), module + member}});
        if (found.size() > 1) break;
      }
    return found.size() == 1 ? std::optional(std::move(found.front())) : std::nullopt;
  }

  /// Those of which all these parameters may be meant, but no more than two. The module itself is none: it is told of.
  const std::vector<std::string>& modules_beside(const std::string& module, const std::set<std::string>& members) {
    const auto [at, is_new] = beside_.try_emplace({parent_of(module), members});
    if (!is_new) return at->second;
    for (const auto& [other, untold] : untold_[parent_of(module)])
      if (at->second.size() < 2 && std::ranges::includes(untold, members)) at->second.push_back(other);
    return at->second;
  }

  const std::set<std::string>& untold_of(const std::string& module) { return untold_[parent_of(module)][module]; }

  /// One parameter cannot be that of two values, and one value not that of two tensors.
  void drop_doubtful() {
    std::map<std::string, int> uses;
    for (const Proposal& each : proposals_) {
      ++uses["%" + each.lost.value];
      for (const auto& [known, parameter] : each.parameters) ++uses[parameter];
    }
    std::erase_if(proposals_, [&](const Proposal& each) {
      return uses["%" + each.lost.value] > 1 ||
             std::ranges::any_of(each.parameters, [&](const auto& pair) { return uses[pair.second] > 1; });
    });
  }

  void add_tensor(size_t of, const Proposal& each) {
    Tensor tensor = body_.initializers[of];
    separation_.sources.emplace(each.lost.value, tensor);
    std::string note;
    for (const std::string& name : parse_names(body_.folded_from.at(tensor.name))) {
      const auto other = each.parameters.find(name);
      note += text(note.empty() ? "['" : ", '", other == each.parameters.end() ? name : other->second, "'");
    }
    body_.folded_from[each.lost.value] = note + "]";
    tensor.name = each.lost.value;
    body_.initializers.push_back(std::move(tensor));
  }

  void add_nodes(const std::map<std::string, const Proposal*>& of_node) {
    std::vector<OnnxNode> nodes;
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      std::optional<OnnxNode> other;
      const OnnxNode& node = body_.nodes[n];
      if (const auto each = of_node.find(node.outputs.empty() ? "" : node.outputs[0]); each != of_node.end())
        other = node_for(node, *each->second);
      nodes.push_back(std::move(body_.nodes[n]));
      separation_.nodes.emplace_back(n);
      if (!other) continue;
      nodes.push_back(std::move(*other));
      separation_.nodes.emplace_back();
    }
    body_.nodes = std::move(nodes);
  }

  OnnxNode node_for(const OnnxNode& known, const Proposal& each) const {
    OnnxNode node = known;
    node.name = each.lost.value;
    node.outputs = {each.lost.value};
    std::map<std::string, std::string> values = {{"%" + each.known, "%" + each.lost.value}};
    for (const auto& [parameter, other] : each.parameters) values[input_of_.at(parameter)] = input_of_.at(other);
    node.exported_from = with_values(known.exported_from, values);
    return node;
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const ElementsOf& elements_of_;
  const std::set<std::string> inner_;            // what bodies of nodes read
  std::map<std::string, size_t> tensors_;        // the place of each
  std::set<std::string> made_;                   // values and tensors of the file, results of its calls
  std::map<std::string, std::string> input_of_;  // "%p_weight" by the name of the tensor
  std::vector<std::optional<ExportedCall>> calls_;
  std::map<std::string, std::vector<Place>> readers_;
  using Parent = std::optional<std::string>;
  std::map<Parent, std::map<std::string, std::set<std::string>>> untold_;  // parameters, by their modules
  std::map<std::pair<Parent, std::set<std::string>>, std::vector<std::string>> beside_;
  std::vector<Proposal> proposals_;
  Separation separation_;
};

}  // namespace

Separation separate_merged(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                           const ElementsOf& elements_of) {
  return Separator(body, signature, rules, elements_of).run();
}

}  // namespace graphpipe::frontend
