#include "frontend/untraced_parameters.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>

#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/left_out_in_code.h"
#include "frontend/left_out_numbers.h"
#include "frontend/looked_up_rows.h"
#include "frontend/lost_by_export.h"
#include "frontend/merged_readers.h"
#include "frontend/parameter_names.h"
#include "frontend/restore_parts.h"
#include "frontend/restore_split.h"
#include "frontend/results_with_parameters.h"
#include "frontend/twin_layers.h"

namespace graphpipe::frontend {
namespace {

/// "linear_1.weight" is an entry of the module's state; "linear_1" is a value of its program.
bool names_value(std::string_view name) { return name.find_first_of("./:") == name.npos; }

/// An initializer that the exporter's optimiser has computed: it has the name of a value of the module's program.
bool is_computed(const Tensor& tensor, const ExportSignature& signature) {
  const auto dtype = dtype_of_onnx(tensor.onnx_type);
  return dtype && ir::is_floating(*dtype) && names_value(tensor.name) && !is_anonymous(tensor.name) &&
         !signature.is_parameter.contains(tensor.name);
}

/// A part of a parameter, which no other part has elements of.
bool is_part(const Tensor& tensor, const ExportSignature& signature) {
  return tensor.name.ends_with(kPartSuffix) && is_computed(tensor, signature);
}

/// The parameters that the optimiser has computed a tensor from.
std::vector<std::string> noted_parameters(const Tensor& tensor, const GraphBody& body,
                                          const ExportSignature& signature) {
  const auto note = body.folded_from.find(tensor.name);
  if (note == body.folded_from.end()) return {};
  std::vector<std::string> names = parse_names(note->second);
  std::erase_if(names, [&](const std::string& name) { return !signature.lists_parameter(name); });
  return names;
}

/// Whether the optimiser notes that it has computed with the elements of parameters, rather than moved them.
bool is_computed_with(const Tensor& tensor, const GraphBody& body, const ExportSignature& signature) {
  const auto note = body.folded_from.find(tensor.name);
  return note != body.folded_from.end() && computes_with_elements(tensor.name, note->second, signature);
}

bool is_look_up(const Tensor& tensor, const GraphBody& body, const ExportSignature& signature) {
  if (is_part(tensor, signature)) return true;
  const bool is_named = tensor.name.starts_with("embedding") || tensor.name.ends_with(kRowsSuffix);
  return is_named && is_computed(tensor, signature) && tensor.dims.size() > 1 &&
         noted_parameters(tensor, body, signature).size() < 2 && !is_computed_with(tensor, body, signature);
}

/// The bytes of each row; nothing where they cannot be read.
std::optional<std::vector<std::string>> rows_of(const Tensor& look_up, const ElementsOf& elements_of) {
  const std::optional<std::string> elements = elements_of(look_up);
  if (!elements) return std::nullopt;
  const auto width =
      static_cast<size_t>(look_up.dims.back() * ir::bytes_per_element(*dtype_of_onnx(look_up.onnx_type)));
  std::vector<std::string> rows;
  for (size_t at = 0; width > 0 && at < elements->size(); at += width) rows.push_back(elements->substr(at, width));
  return rows;
}

/// Rows that were drawn are equal only where they are one; those that cannot be read may be.
void examine_rows(const Tensor& look_up, const ElementsOf& elements_of, UntracedParameters& untraced) {
  const auto rows = rows_of(look_up, elements_of);
  const bool has_equal = !rows || std::set<std::string>(rows->begin(), rows->end()).size() < rows->size();
  const auto is_zero = [](const std::string& row) { return row.find_first_not_of('\0') == row.npos; };
  if (has_equal) untraced.repeated.insert(look_up.name);
  else if (std::ranges::any_of(*rows, is_zero)) untraced.with_zeros.insert(look_up.name);
}

/// Whether no row stands in two places of what was looked up of one table.
bool have_separate_rows(const std::vector<const Tensor*>& look_ups, const ElementsOf& elements_of) {
  std::set<std::string> distinct;
  size_t count = 0;
  for (const Tensor* look_up : look_ups) {
    const auto rows = rows_of(*look_up, elements_of);
    if (!rows) return false;
    count += rows->size();
    distinct.insert(rows->begin(), rows->end());
  }
  return distinct.size() == count;
}

/// Values that are a parameter itself, seen in another way.
bool is_view(std::string_view value) {
  constexpr std::array<std::string_view, 9> kViews = {"alias",   "clone", "contiguous", "detach", "numpy_t",
                                                      "permute", "t",     "transpose",  "view"};
  const std::string_view op = value.substr(0, value.find_last_not_of("0123456789_") + 1);
  return std::ranges::find(kViews, op) != kViews.end();
}

/// Values that differ from what they were computed from, so that none is another name of a parameter.
bool is_changed(std::string_view value) {
  constexpr std::array<std::string_view, 6> kChanges = {"add", "exp", "neg", "numpy_t", "t", "unsqueeze"};
  return std::ranges::find(kChanges, call_of_value(value)) != kChanges.end();
}

/// Whether the node has elements of its first input alone, by sizes or places that others say.
bool takes_elements(const OnnxNode& node) {
  constexpr std::array<std::string_view, 10> kOps = {"Expand",  "Gather", "GatherElements", "GatherND",  "Reshape",
                                                     "Squeeze", "Slice",  "Tile",           "Transpose", "Unsqueeze"};
  return std::ranges::find(kOps, node.op) != kOps.end() && !node.inputs.empty();
}

bool is_matrix(const Tensor& tensor) {
  return std::ranges::count_if(tensor.dims, [](int64_t dim) { return dim > 1; }) > 1;
}

/// Whether numbers among the arguments of a call are sizes, which the program computes as it does values.
bool takes_sizes(std::string_view target) {
  constexpr std::array<std::string_view, 12> kTargets = {"aten.arange", "aten.expand", "aten.full",    "aten.new_",
                                                         "aten.ones",   "aten.repeat", "aten.reshape", "aten.select",
                                                         "aten.slice",  "aten.split",  "aten.view",    "aten.zeros"};
  return std::ranges::any_of(kTargets, [&](std::string_view each) { return target.starts_with(each); });
}

class Tracer {
 public:
  Tracer(const GraphBody& body, const ExportSignature& signature, const ParameterRules& rules)
      : body_(body), signature_(signature), rules_(rules), twins_(body, signature) {
    for (const Tensor& tensor : body.initializers) {
      values_.insert(tensor.name);
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (dtype && ir::is_floating(*dtype) && is_matrix(tensor)) matrices_.emplace(tensor.name, &tensor);
    }
    for (const ValueInfo& input : body.inputs) values_.insert(input.name);
    collect_computed();
    collect_of_parameters();
    std::map<std::string_view, std::vector<const OnnxNode*>> nodes;  // by the text of the call
    for (const OnnxNode& node : body.nodes) {
      values_.insert(node.outputs.begin(), node.outputs.end());
      if (!node.exported_from.empty()) nodes[node.exported_from].push_back(&node);
    }
    computed_with_ = results_with_parameters(body.nodes, of_parameters_);
    for (const auto& [text, of_call] : nodes)
      if (const std::optional<ExportedCall> call = parse_exported_call(text)) read(*call, of_call);
  }

  /// `left_out`: what left_out() has found.
  UntracedParameters run(const std::optional<LeftOut>& left_out) {
    UnknownNames names;
    std::map<std::string_view, int64_t> unexplained;  // what ties or look-ups have to explain
    for (const auto& [name, is_parameter] : signature_.is_parameter) {
      if (!is_parameter || has_trace(name)) continue;
      ++unexplained[split_name(name).second];
      if (!rules_.tied(name).value_or(false)) names[split_name(name).second].push_back(name);
    }
    for (const auto& [name, calls] : readers_) unexplained[split_name(name).second] -= std::ssize(calls) - 1;
    for (const Tensor& tensor : body_.initializers)
      if (is_look_up(tensor, body_, signature_) && noted_parameters(tensor).empty()) --unexplained["weight"];
    UntracedParameters untraced{.folded_weight = folded_weight(), .parted = parted_};
    const auto folded = std::ranges::find(body_.initializers, untraced.folded_weight, &Tensor::name);
    if (folded != body_.initializers.end()) untraced.folded_from = noted_parameters(*folded);
    for (const auto& [name, tensor] : computed_from_)
      if (!rules_.tied(name).value_or(false)) untraced.names.push_back(name);
    if (!untraced.names.empty()) untraced.evidence = computed(computed_from_.at(untraced.names.front()));
    for (const auto& [name, call] : without_product_)
      if (!values_.contains(name) && !readers_.contains(name) && !rules_.tied(name).value_or(false))
        untraced.names.push_back(name);
    untraced.unexplained = untraced.names.size();
    if (!untraced.names.empty() && untraced.evidence.empty())
      untraced.evidence = merged(without_product_.at(untraced.names.front()));
    // Layers that are applied several times look like ties, which may not hide what is known.
    const bool is_sure = !names.empty() && has_lost_layer(names);
    for (auto& [component, of_component] : names) {
      const auto left = static_cast<size_t>(std::max<int64_t>(is_sure ? 1 : 0, unexplained[component]));
      if (left == 0) continue;
      untraced.unexplained += std::min(left, of_component.size());
      std::ranges::move(of_component, std::back_inserter(untraced.names));
    }
    if (const std::string other = split_for_other(body_, untraced.names); !other.empty() && untraced.evidence.empty())
      untraced.evidence = text("the exporter's optimiser splits ", quoted(ModelText(other)), " in its place");
    if (untraced.unexplained > 0 && untraced.evidence.empty()) untraced.evidence = evidence();
    if (left_out && untraced.evidence.empty()) {
      std::erase(untraced.names, left_out->parameter);
      untraced.names.insert(untraced.names.begin(), left_out->parameter);
      untraced.unexplained = std::max<size_t>(untraced.unexplained, 1);
      untraced.evidence = left_out->evidence;
      untraced.is_left_out = true;
    }
    return untraced;
  }

  /// A parameter whose elements the code of a node takes, and the file does not.
  std::optional<LeftOut> left_out() const {
    std::set<std::string> unknown;
    for (const auto& [name, is_parameter] : signature_.is_parameter)
      if (is_parameter && !has_trace(name) && !rules_.tied(name).value_or(false) && rules_.trains(name).value_or(true))
        unknown.insert(name);
    const auto is_made_here = [this](const std::string& name) { return is_made(name); };
    std::optional<LeftOut> found = left_out_in_code(body_, signature_, unknown, is_made_here);
    return found ? found : left_out_number(body_, signature_, unknown, is_made_here);
  }

  /// Drops tables of which all tensors have rows of their own from what trains apart: each row trains in one place.
  void drop_separate_rows(const ElementsOf& elements_of, std::map<std::string, std::string>& parted) const {
    std::map<std::string, std::vector<const Tensor*>> look_ups;  // by table
    for (const Tensor& tensor : body_.initializers)
      if (is_look_up(tensor, body_, signature_) && !is_part(tensor, signature_))
        for (const std::string& table : noted_parameters(tensor)) look_ups[table].push_back(&tensor);
    std::erase_if(parted, [&](const auto& entry) {
      const auto& [tensor, table] = entry;
      const auto found = look_ups.find(table);
      return found != look_ups.end() && !values_.contains(table) &&
             std::ranges::find(found->second, tensor, &Tensor::name) != found->second.end() &&
             have_separate_rows(found->second, elements_of);
    });
  }

  std::vector<DoubtfulLayer> doubtful_layers(const ElementsOf& elements_of) const {
    std::set<std::string> lost = read_;
    std::erase_if(lost, [this](const std::string& name) { return is_made(name); });
    return twins_.doubtful(lost, elements_of);
  }

  /// The result of a layer, or another that was computed with a parameter (results_with_parameters.h), that is read
  /// though no node makes it; empty if there is none.
  std::string merged_layer() const {
    for (const std::string& name : read_)
      if (is_of_layer(name) && !is_made(name)) return name;
    for (const std::string& name : merged_)
      if (!is_made(name)) return name;
    return {};
  }

 private:
  /// Whether the file has something of the parameter, or need not.
  bool has_trace(const std::string& name) const {
    return values_.contains(name) || readers_.contains(name) || without_product_.contains(name) ||
           computed_from_.contains(name) || looked_up_.contains(name) || rules_.leaves_out(name);
  }

  /// By the optimiser's notes.
  void collect_computed() {
    for (const Tensor& tensor : body_.initializers) {
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (!dtype || !ir::is_floating(*dtype) || is_constant_maker(tensor.name)) continue;
      for (const std::string& name : noted_parameters(tensor)) {
        const bool is_first =
            !is_look_up(tensor, body_, signature_) || looked_up_.insert(name).second || is_part(tensor, signature_);
        if (values_.contains(name) || !is_first) parted_.emplace(tensor.name, name);
        else if (is_made_of_parameters(tensor)) computed_from_.emplace(name, tensor.name);
      }
    }
  }

  /// Whether it is no parameter's elements in other places. Of a transposed weight the name says nothing.
  bool is_made_of_parameters(const Tensor& tensor) const {
    if (is_anonymous(tensor.name)) return is_computed_with(tensor, body_, signature_);
    return is_computed(tensor, signature_) && !is_look_up(tensor, body_, signature_);
  }

  std::vector<std::string> noted_parameters(const Tensor& tensor) const {
    return graphpipe::frontend::noted_parameters(tensor, body_, signature_);
  }

  /// Whether it was computed from constants and buffers, by its note.
  bool is_of_no_parameter(const Tensor& tensor) const {
    return body_.folded_from.contains(tensor.name) && noted_parameters(tensor).empty();
  }

  /// Whether the node computes with a parameter, or with what was computed from some; else one that has been
  /// merged with it has none either. Parameters keep their names where constants have their values.
  bool is_of_parameter(const OnnxNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const std::string& input) { return of_parameters_.contains(input); });
  }

  void collect_of_parameters() {
    std::set<std::string> constants;
    for (const Tensor& tensor : body_.initializers) {
      constants.insert(tensor.name);
      const bool may_be_computed = is_computed(tensor, signature_) && !is_of_no_parameter(tensor);
      if (signature_.lists_parameter(tensor.name) || may_be_computed || !noted_parameters(tensor).empty())
        of_parameters_.insert(tensor.name);
    }
    for (const OnnxNode& node : body_.nodes) {
      const bool is_constant =
          std::ranges::all_of(node.inputs, [&](const std::string& input) { return constants.contains(input); });
      if (is_constant) constants.insert(node.outputs.begin(), node.outputs.end());
      const bool is_of_parameters =
          is_constant ? is_of_parameter(node) : takes_elements(node) && of_parameters_.contains(node.inputs[0]);
      if (is_of_parameters) of_parameters_.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  /// Whether the nodes of a call read a result of the value's kind which the call does not take. Another is read in the
  /// place of one that has been merged with it; of a multiplication by 1, which is left out, what it multiplied.
  bool reads_another(const std::string& value, const ExportedCall& call,
                     const std::vector<const OnnxNode*>& nodes) const {
    const auto of_kind = computed_with_.find(call_of_value(value));
    if (of_kind == computed_with_.end()) return false;
    const auto& results = of_kind->second;
    const auto takes = [&](const std::string& name) {
      return std::ranges::find(call.values, "%" + name) != call.values.end();
    };
    return std::ranges::any_of(nodes, [&](const OnnxNode* node) {
      return std::ranges::any_of(node->inputs, [&](const std::string& input) {
        const auto result = results.find(input);
        return result != results.end() && result->second != call.result && !takes(input) && !takes(result->second);
      });
    });
  }

  /// Whether the nodes of a call read a parameter that the call does not take.
  bool reads_another_parameter(const ExportedCall& call, const std::vector<const OnnxNode*>& nodes) const {
    std::set<std::string> taken;
    for (const std::string& value : call.values) taken.insert(signature_.tensor_of(value));
    return std::ranges::any_of(nodes, [&](const OnnxNode* node) {
      return std::ranges::any_of(node->inputs, [&](const std::string& input) {
        return signature_.lists_parameter(input) && !taken.contains(input);
      });
    });
  }

  /// Whether the call has two first states where its node has one, of a parameter, for both.
  bool reads_one_state(const ExportedCall& call, const std::vector<const OnnxNode*>& nodes) const {
    constexpr size_t kHidden = 5, kCell = 6;
    if (!call.target.starts_with("aten.lstm.")) return false;
    const std::string_view states = call.argument(1);  // "[%clone, %clone_1]"
    const size_t comma = states.find(", ");
    if (!states.starts_with('[') || !states.ends_with(']') || comma == states.npos) return false;
    const std::string_view hidden = states.substr(1, comma - 1);
    if (hidden == states.substr(comma + 2, states.size() - comma - 3)) return false;
    return std::ranges::any_of(nodes, [&](const OnnxNode* node) {
      return node->op == "LSTM" && node->inputs.size() > kCell && node->inputs[kHidden] == node->inputs[kCell] &&
             of_parameters_.contains(node->inputs[kCell]);
    });
  }

  void read(const ExportedCall& call, const std::vector<const OnnxNode*>& nodes) {
    results_.insert(call.result);
    twins_.read(call, nodes);
    const bool has_product = std::ranges::any_of(nodes, [](const OnnxNode* node) { return is_product(*node); });
    const bool lacks_product = bias_argument(call.target) && !has_product;
    const bool reads_other = reads_another_parameter(call, nodes);
    if (reads_one_state(call, nodes)) merged_states_ = call.result;
    const std::string weight = lacks_product ? signature_.tensor_of(call.argument(*weight_argument(call.target))) : "";
    for (const std::string& name : call.values) {
      const std::string listed = signature_.tensor_of(name);
      if (listed.empty()) {
        read_.insert(name.substr(1));
        if (call.target.starts_with("aten.cat.")) joined_.insert(name.substr(1));
        if (!takes_sizes(call.target) && reads_another(name.substr(1), call, nodes)) merged_.insert(name.substr(1));
        if (reads_other && is_changed(name.substr(1))) merged_.insert(name.substr(1));
      } else if (listed == weight) {
        without_product_.emplace(listed, call.result);
      } else {
        readers_[listed].insert(call.result);
      }
    }
  }

  /// A layer that has been merged with another, or computed beforehand.
  bool has_lost_layer(const UnknownNames& unknown) const {
    const auto is_lost = [&](const std::string& name) {
      return is_of_layer(name) && !is_made(name) && !twins_.is_applied_again(name, unknown);
    };
    const auto is_folded = [&](const Tensor& tensor) {
      return is_computed(tensor, signature_) && !is_look_up(tensor, body_, signature_) && is_of_layer(tensor.name);
    };
    return std::ranges::any_of(read_, is_lost) || std::ranges::any_of(body_.initializers, is_folded);
  }

  /// What a product multiplies by and no layer of the module has, nor its program as a constant.
  std::string folded_weight() const {
    for (const OnnxNode& node : body_.nodes) {
      if (!is_product(node)) continue;
      for (const std::string& input : node.inputs) {
        const auto matrix = matrices_.find(input);
        if (matrix == matrices_.end() || signature_.is_parameter.contains(input)) continue;
        if (is_of_no_parameter(*matrix->second)) continue;
        if (is_computed(*matrix->second, signature_) && !is_look_up(*matrix->second, body_, signature_) &&
            !is_constant_maker(input))
          return input;
        if (is_anonymous(input) && is_of_computed_weight(node)) return input;
      }
    }
    return {};
  }

  /// Whether the node's call multiplies by something that its program computes and the file does not.
  bool is_of_computed_weight(const OnnxNode& node) const {
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    const std::optional<size_t> place = call ? weight_argument(call->target) : std::nullopt;
    const std::string argument(place ? call->argument(*place) : std::string_view());
    return argument.starts_with('%') && signature_.tensor_of(argument).empty() && !is_made(argument.substr(1)) &&
           !is_constant_maker(argument) && !is_view(argument.substr(1));
  }

  bool is_made(const std::string& name) const { return values_.contains(name) || results_.contains(name); }

  static std::string merged(const std::string& value) {
    return text("the exporter's optimiser has merged the layer of ", quoted(ModelText(value)), " with another");
  }

  std::string computed(const std::string& value) const {
    return text("the exporter's optimiser has computed ", quoted(ModelText(value)), " beforehand", reader_of(value));
  }

  /// ", which 'x * scale' of 'layers.0' reads".
  std::string reader_of(const std::string& value) const {
    for (const OnnxNode& node : body_.nodes) {
      std::string_view line = line_of(node.code);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      if (line.empty() || std::ranges::find(node.inputs, value) == node.inputs.end()) continue;
      const std::string module = node.module.empty() ? "" : text(" of ", quoted(ModelText(node.module)));
      return text(", which ", quoted(ModelText(std::string(line))), module, " reads");
    }
    return {};
  }

  /// A layer whose node has gone, though the result is still read; or values that were computed beforehand.
  std::string evidence() const {
    if (!merged_states_.empty())
      return text("the exporter's optimiser has merged the two first states of ", quoted(ModelText(merged_states_)),
                  ", which began alike");
    if (const std::string layer = merged_layer(); !layer.empty()) return merged(layer);
    // Tokens that samples share are expanded before they are joined with others.
    for (const std::string& name : joined_)
      if (name.starts_with("expand") && !is_made(name)) return merged(name);
    const bool lacks_buffers = std::ranges::any_of(
        signature_.is_parameter, [&](const auto& listed) { return !listed.second && !values_.contains(listed.first); });
    for (const Tensor& tensor : body_.initializers) {
      if (!is_computed(tensor, signature_) || is_look_up(tensor, body_, signature_) || is_constant_maker(tensor.name))
        continue;
      if (is_of_no_parameter(tensor)) continue;
      // Tables of rotary positions are computed from buffers.
      const bool is_table = tensor.dims.size() > 1;
      if (!lacks_buffers || !is_table || is_of_layer(tensor.name)) return computed(tensor.name);
    }
    return {};
  }

  const GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  std::set<std::string> values_, results_, read_;  // of the file; of its calls; which those take
  std::set<std::string> joined_, merged_;          // of these: what is joined; what may have been merged
  std::string merged_states_;                      // an LSTM that has one first state for two
  ResultsByKind computed_with_;                    // a parameter
  std::set<std::string> of_parameters_;            // tensors, and values, of parameters alone
  std::set<std::string> looked_up_;                // parameters whose rows were looked up beforehand, by notes
  std::map<std::string, const Tensor*> matrices_;
  std::map<std::string, std::set<std::string>> readers_;  // of each tensor: the calls that take it
  std::map<std::string, std::string> without_product_;    // weights of calls of which the file has no product
  TwinLayers twins_;
  std::map<std::string, std::string> parted_;         // tensors, and the parameter that they were computed from
  std::map<std::string, std::string> computed_from_;  // parameters without a tensor, and what was computed of each
};

}  // namespace

FoldedLookUps folded_look_ups(const GraphBody& body, const ExportSignature& signature) {
  FoldedLookUps look_ups;
  if (signature.tensor_of_input.empty()) return look_ups;
  for (const Tensor& tensor : body.initializers) {
    if (!is_look_up(tensor, body, signature)) continue;
    const auto note = body.folded_from.find(tensor.name);
    look_ups[tensor.name] = calls_of_numbers(note == body.folded_from.end() ? "" : note->second, signature);
  }
  return look_ups;
}

UntracedParameters untraced_parameters(const GraphBody& body, const ExportSignature& signature,
                                       const ParameterRules& rules, const ElementsOf& elements_of, bool has_restored) {
  if (signature.tensor_of_input.empty()) return {};
  Tracer tracer(body, signature, rules);
  const std::optional<LeftOut> left_out = tracer.left_out();
  const bool is_optimised = has_restored || left_out || !tracer.merged_layer().empty() ||
                            std::ranges::any_of(body.initializers, [&](const Tensor& tensor) {
                              return is_anonymous(tensor.name) || is_computed(tensor, signature);
                            });
  if (!is_optimised) return {};
  UntracedParameters untraced = tracer.run(left_out);
  tracer.drop_separate_rows(elements_of, untraced.parted);
  untraced.doubtful = tracer.doubtful_layers(elements_of);
  for (const Tensor& tensor : body.initializers)
    if (is_look_up(tensor, body, signature) && !is_part(tensor, signature)) examine_rows(tensor, elements_of, untraced);
  return untraced;
}

}  // namespace graphpipe::frontend
