#include "frontend/restore_parameters.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/call_operands.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/name_repeated.h"
#include "frontend/recompute_folded.h"
#include "frontend/restore_first_steps.h"
#include "frontend/restore_folded.h"
#include "frontend/restore_parts.h"
#include "frontend/restore_recurrent.h"
#include "frontend/restore_split.h"
#include "frontend/separate_memories.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

using Dims = std::vector<int64_t>;

/// The nodes that were exported from one call of the module.
struct CallNodes {
  ExportedCall call;
  std::vector<size_t> nodes;
};

/// The tensor that a parameter had before the optimiser: from which one in the file, and how that one holds it.
struct Wanted {
  std::string name, from;
  OperandForm form = OperandForm::kSame;
};

/// The value that nodes read in place of a tensor, and the place of the first of them.
struct Operand {
  std::string value;
  size_t place = 0;
};

Attribute ints_attribute(const std::string& name, Dims ints) {
  Attribute attribute;
  attribute.name = name;
  attribute.kind = Attribute::Kind::kInts;
  attribute.ints = std::move(ints);
  return attribute;
}

OnnxNode node_of(const std::string& op, std::vector<std::string> inputs, const std::string& output) {
  OnnxNode node;
  node.name = output;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

/// The axis along which a vector stands among others of size 1.
size_t axis_of_vector(const Dims& dims) {
  const auto found = std::ranges::find_if(dims, [](int64_t dim) { return dim != 1; });
  return found == dims.end() ? 0 : static_cast<size_t>(found - dims.begin());
}

/// The dims of the module's tensor, of which the file has one of these dims; nothing where the two do not fit.
std::optional<Dims> dims_before(const Dims& dims, OperandForm form) {
  if (form == OperandForm::kTransposed) return dims.size() == 2 ? std::optional(Dims{dims[1], dims[0]}) : std::nullopt;
  if (form == OperandForm::kSame) return dims;
  if (dims.empty() || std::ranges::count_if(dims, [](int64_t dim) { return dim != 1; }) > 1) return std::nullopt;
  return Dims{dims[axis_of_vector(dims)]};
}

class Restorer {
 public:
  Restorer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
           const MayBeTransposes& may_be_transposes)
      : body_(body),
        signature_(signature),
        rules_(rules),
        may_be_transposes_(may_be_transposes),
        before_(body.nodes.size()),
        after_(body.nodes.size()),
        names_(value_names(body)) {
    for (size_t i = 0; i < body.initializers.size(); ++i) {
      const auto dtype = dtype_of_onnx(body.initializers[i].onnx_type);
      const bool has_whole_bytes = dtype && wire::find_element_type(*dtype)->packed == 1;
      if (has_whole_bytes && ir::is_floating(*dtype)) held_.emplace(body.initializers[i].name, i);
    }
    collect_calls();
  }

  Restoration run() {
    for (const CallNodes* each : order_) {
      auto bias = find_lost_bias(*each);  // before the weight is read through another node
      restore_reads(*each);
      if (bias) restore_bias(bias->first, std::move(bias->second));
      separate_constants(*each);
    }
    drop_unread();
    return {.names = std::move(restored_), .sources = std::move(sources_), .nodes = join_nodes()};
  }

 private:
  void collect_calls() {
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const std::string& text = body_.nodes[i].exported_from;
      std::optional<ExportedCall> call = parse_exported_call(text);
      if (!call) continue;
      results_.insert(call->result);
      const auto [at, is_new] = calls_.try_emplace(text, CallNodes{std::move(*call), {}});
      if (is_new) order_.push_back(&at->second);
      at->second.nodes.push_back(i);
    }
  }

  const Tensor* held(const std::string& name) const {
    const auto found = held_.find(name);
    return found == held_.end() ? nullptr : &body_.initializers[found->second];
  }
  bool is_tied(const std::string& name) const { return rules_.tied(name).value_or(false); }
  bool is_listed(const std::string& name) const { return signature_.is_parameter.contains(name); }

  void restore_reads(const CallNodes& of) {
    if (const auto only = only_parameter(of)) restore_only(of, *only);
    for (const size_t n : of.nodes)
      for (size_t i = 0; i < body_.nodes[n].inputs.size(); ++i) {
        const std::optional<CallOperand> operand = call_operand(of.call, body_.nodes[n], i);
        if (operand && held(body_.nodes[n].inputs[i]) != nullptr)
          restore_read(n, i,
                       {.name = taken_by(of.call, body_.nodes[n], operand->argument),
                        .from = body_.nodes[n].inputs[i],
                        .form = operand->form});
      }
  }

  /// The tensor of the module that a call takes. A BatchNorm that is applied again takes what its first call has made
  /// of the running statistics, which are these.
  std::string taken_by(const ExportedCall& call, const OnnxNode& node, size_t argument) {
    std::string name = signature_.tensor_of(call.argument(argument));
    if (node.op != "BatchNormalization" || argument < 3) return name;
    std::set<std::string>& statistics =
        statistics_[text(node.module, " ", call.argument(1), " ", call.argument(2), " ", argument)];
    if (!name.empty()) statistics.insert(name);
    const bool is_again = name.empty() && call.argument(argument).starts_with("%getitem") && statistics.size() == 1;
    return is_again ? *statistics.begin() : name;
  }

  /// The parameter of a call that takes no other, such as a product with a scale.
  std::optional<std::string> only_parameter(const CallNodes& of) const {
    std::set<std::string> names;
    for (const std::string& value : of.call.values)
      if (std::string name = signature_.tensor_of(value); !name.empty()) names.insert(std::move(name));
    const bool is_direct = std::ranges::any_of(
        of.call.arguments, [&](const std::string& argument) { return names.contains(signature_.tensor_of(argument)); });
    if (!is_direct || names.size() != 1) return std::nullopt;
    // What has a tensor in the file is read there; what has been given one may be read in another call yet.
    const std::string& name = *names.begin();
    return held(name) == nullptr || added_.contains(name) ? std::optional(name) : std::nullopt;
  }

  /// Where one operand of the call's nodes is a tensor that is listed, it is this parameter's.
  void restore_only(const CallNodes& of, const std::string& name) {
    std::vector<std::pair<size_t, size_t>> operands;
    for (const size_t n : of.nodes)
      for (size_t i = 0; i < body_.nodes[n].inputs.size(); ++i) {
        if (call_operand(of.call, body_.nodes[n], i)) return;  // a layer of the table
        const std::string& input = body_.nodes[n].inputs[i];
        if (held(input) != nullptr && is_listed(input)) operands.emplace_back(n, i);
      }
    if (operands.size() != 1) return;
    const auto [n, i] = operands.front();
    restore_read(n, i, {.name = name, .from = body_.nodes[n].inputs[i]});
  }

  void restore_read(size_t node, size_t input, const Wanted& wanted) {
    if (wanted.name.empty() || wanted.name == wanted.from || is_tied(wanted.name)) return;
    const Dims there = held(wanted.from)->dims;
    const std::optional<Dims> dims = dims_before(there, wanted.form);
    if (!dims) return;
    if (held(wanted.name) == nullptr) {
      if (!add(wanted, *dims)) return;
    } else if (!added_.contains(wanted.name) && wanted.form != OperandForm::kTransposed && !is_moved(wanted)) {
      return;  // of tensors in the file only the transposes were copied, of tied weights
    }
    if (held(wanted.name)->dims != *dims) return;
    if (!added_.contains(wanted.name) && wanted.form == OperandForm::kTransposed &&
        !may_be_transposes_(*held(wanted.name), *held(wanted.from)))
      return;
    const std::string value = operand_of(node, wanted, there);
    if (value.empty()) return;
    body_.nodes[node].inputs[input] = value;
    left_.insert(wanted.from);
    report(wanted.name);
  }

  /// Whether the optimiser notes that it computed the file's tensor from the parameter alone, or from another one that
  /// began alike: within a call that takes it, this moves axes, if any.
  bool is_moved(const Wanted& wanted) const {
    const auto note = body_.folded_from.find(wanted.from);
    if (!is_anonymous(wanted.from) || note == body_.folded_from.end()) return false;
    const std::vector<std::string> from = parse_names(note->second);
    return from.size() == 1 && signature_.lists_parameter(from[0]);
  }

  /// The tensor of the module, with the elements of the file's. A tensor that goes on as it is must be known as that of
  /// another: one without a name may be anything, such as a weight that the statistics of a norm are folded into.
  bool add(const Wanted& wanted, const Dims& dims) {
    if (names_.contains(wanted.name) || !is_listed(wanted.name)) return false;
    const bool may_be_other = wanted.form == OperandForm::kSame && !is_moved(wanted);
    if (!is_listed(wanted.from) && (may_be_other || !is_anonymous(wanted.from))) return false;
    Tensor tensor = *held(wanted.from);
    sources_.emplace(wanted.name, tensor);
    tensor.name = wanted.name;
    tensor.dims = dims;
    if (wanted.form == OperandForm::kTransposed) tensor.layout = Tensor::Layout::kTransposed;
    add_tensor(std::move(tensor));
    return true;
  }

  /// Constants of the program that have the values of a parameter share its tensor, and those of a layer without
  /// weights are read where weights are: they get tensors of their own, which do not train.
  void separate_constants(const CallNodes& of) {
    for (const size_t n : of.nodes)
      for (size_t i = 0; i < body_.nodes[n].inputs.size(); ++i) {
        const std::string name = body_.nodes[n].inputs[i];
        if (held(name) == nullptr || added_.contains(name) || !reads_constant(of.call, body_.nodes[n], i)) continue;
        const std::string constant = text(name, kConstantSuffix);
        if (!added_.contains(constant)) {
          if (names_.contains(constant)) continue;
          Tensor copy = *held(name);
          sources_.emplace(constant, copy);
          copy.name = constant;
          add_tensor(std::move(copy));
        }
        body_.nodes[n].inputs[i] = constant;
        left_.insert(name);
      }
  }

  bool reads_constant(const ExportedCall& call, const OnnxNode& node, size_t input) const {
    const std::string& name = node.inputs[input];
    const auto takes = [&](const std::string& value) { return signature_.tensor_of(value) == name; };
    // A BatchNorm without weights, whose variances begin as ones, reads these where the weights would be.
    if (node.op != "BatchNormalization" && std::ranges::any_of(call.values, takes)) return false;
    if (const auto operand = call_operand(call, node, input)) {
      // An addition behind a product may have been joined with it, so that a bias is there which the call does not
      // take.
      const std::string_view argument = call.argument(operand->argument);
      const bool is_left_out = argument.empty() || argument == "None";
      return is_constant_maker(argument) || (is_left_out && node.op.ends_with("Normalization"));
    }
    // A value that nothing makes may be another name of the tensor; one that is missing may have been merged with it.
    return is_listed(name) && std::ranges::all_of(call.values, [&](const std::string& value) {
             const std::string tensor = signature_.tensor_of(value);
             if (!tensor.empty()) return names_.contains(tensor);
             return names_.contains(value.substr(1)) || results_.contains(value.substr(1)) ||
                    value.starts_with("%sym_") || is_constant_maker(value);
           });
  }

  void add_tensor(Tensor tensor) {
    names_.insert(tensor.name);
    added_.insert(tensor.name);
    held_.emplace(tensor.name, body_.initializers.size());
    body_.initializers.push_back(std::move(tensor));
  }

  /// The name of a new value; empty where the file has one of that name.
  std::string new_value(std::string name) { return names_.insert(name).second ? name : std::string(); }

  /// The value that the node reads in place of the file's tensor of these dims; the node that makes it comes before all
  /// that read it, which are not met in their order: a call may have nodes behind those of the next one.
  std::string operand_of(size_t node, const Wanted& wanted, const Dims& there) {
    const size_t rank = there.size(), axis = axis_of_vector(there);
    if (wanted.form == OperandForm::kSame || (wanted.form == OperandForm::kWithAxes && rank == 1)) return wanted.name;
    auto& [value, place] = operands_[{wanted.name, there}];
    if (!value.empty()) {
      if (node < place) move_maker(value, place, node);
      place = std::min(place, node);
      return value;
    }
    place = node;
    if (wanted.form == OperandForm::kTransposed) {
      value = new_value(wanted.name + "/transposed");
      OnnxNode transpose = node_of("Transpose", {wanted.name}, value);
      transpose.attributes.push_back(ints_attribute("perm", {1, 0}));
      if (!value.empty()) before_[node].push_back(std::move(transpose));
      return value;
    }
    const std::string form = axis == 0 ? text(rank) : text(rank, "/", axis);
    const std::string axes = new_value(text(wanted.name, "/axes", form));
    value = axes.empty() ? axes : new_value(text(wanted.name, "/rank", form));
    if (value.empty()) return value;
    Dims added(rank);
    std::iota(added.begin(), added.end(), 0);
    added.erase(added.begin() + static_cast<std::ptrdiff_t>(axis));
    body_.initializers.push_back(int64_tensor(axes, added));
    before_[node].push_back(node_of("Unsqueeze", {wanted.name, axes}, value));
    return value;
  }

  /// Moves the node that makes the value from before one node to before another.
  void move_maker(const std::string& value, size_t from, size_t to) {
    const auto maker =
        std::ranges::find_if(before_[from], [&](const OnnxNode& each) { return each.outputs[0] == value; });
    before_[to].push_back(std::move(*maker));
    before_[from].erase(maker);
  }

  /// Where the bias of a product has gone: the product, and the bias as it began. Nothing where anything is added.
  std::optional<std::pair<size_t, Tensor>> find_lost_bias(const CallNodes& of) const {
    if (!of.call.keywords.empty()) return std::nullopt;  // beta = 0 of addmm leaves its bias out
    const std::optional<size_t> place = bias_argument(of.call.target);
    // What addmm adds may be of any shape, unless it is the bias of a layer.
    if (place == 0u && !signature_.tensor_of(of.call.argument(0)).ends_with("bias")) return std::nullopt;
    const std::string name = place ? signature_.tensor_of(of.call.argument(*place)) : std::string();
    if (name.empty() || is_tied(name) || (names_.contains(name) && !added_.contains(name))) return std::nullopt;
    std::optional<std::pair<size_t, Tensor>> found;
    for (const size_t n : of.nodes) {
      const OnnxNode& node = body_.nodes[n];
      if (node.op == "Add" || (is_product(node) && (node.inputs.size() != 2 || found))) return std::nullopt;
      if (!is_product(node)) continue;
      const Tensor* weight = held(node.inputs[1]);
      const std::optional<int64_t> outputs = weight == nullptr ? std::nullopt : outputs_of(node, weight->dims);
      if (!outputs) return std::nullopt;
      found.emplace(n, Tensor{.name = name, .onnx_type = weight->onnx_type, .dims = {*outputs}});
      found->second.layout = Tensor::Layout::kZeros;
    }
    return found;
  }

  static std::optional<int64_t> outputs_of(const OnnxNode& node, const Dims& weight) {
    const bool convolves = node.op == "Conv" || node.op == "ConvTranspose";
    if (convolves ? weight.size() < 3 : weight.size() != 2) return std::nullopt;
    if (convolves) {
      const Attribute* group = node.op == "Conv" ? nullptr : node.find("group");
      int64_t outputs = 0;
      if (__builtin_mul_overflow(weight[node.op == "Conv" ? 0 : 1], group == nullptr ? 1 : group->i, &outputs) ||
          outputs < 0)
        return std::nullopt;
      return outputs;
    }
    const Attribute* transposes = node.op == "Gemm" ? node.find("transB") : nullptr;
    return weight[transposes != nullptr && transposes->i != 0 ? 0 : 1];
  }

  void restore_bias(size_t at, Tensor zeros) {
    OnnxNode& product = body_.nodes[at];
    if (const Tensor* there = held(zeros.name); there != nullptr && there->dims != zeros.dims) return;
    if (product.op == "MatMul") {
      const std::string sum = product.outputs[0], value = new_value(sum + "/product");
      if (value.empty()) return;
      product.outputs[0] = value;
      OnnxNode add = node_of("Add", {value, zeros.name}, sum);
      add.exported_from = product.exported_from;
      after_[at].push_back(std::move(add));
    } else {
      product.inputs.push_back(zeros.name);
    }
    report(zeros.name);
    if (held(zeros.name) == nullptr) add_tensor(std::move(zeros));
  }

  void report(const std::string& name) {
    if (reported_.insert(name).second) restored_.push_back(name);
  }

  /// The tensors that no node reads any longer.
  void drop_unread() {
    std::set<std::string> reads;
    collect_reads(body_, reads);
    for (const auto& made : before_)
      for (const OnnxNode& node : made) reads.insert(node.inputs.begin(), node.inputs.end());
    for (const auto& made : after_)
      for (const OnnxNode& node : made) reads.insert(node.inputs.begin(), node.inputs.end());
    std::erase_if(body_.initializers,
                  [&](const Tensor& tensor) { return left_.contains(tensor.name) && !reads.contains(tensor.name); });
  }

  /// Returns where each node stood before.
  std::vector<std::optional<size_t>> join_nodes() {
    std::vector<OnnxNode> nodes;
    std::vector<std::optional<size_t>> places;
    const auto add = [&](OnnxNode& node, std::optional<size_t> place) {
      nodes.push_back(std::move(node));
      places.push_back(place);
    };
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      for (OnnxNode& node : before_[i]) add(node, std::nullopt);
      add(body_.nodes[i], i);
      for (OnnxNode& node : after_[i]) add(node, std::nullopt);
    }
    body_.nodes = std::move(nodes);
    return places;
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const MayBeTransposes& may_be_transposes_;
  std::vector<std::vector<OnnxNode>> before_, after_;  // new nodes around each
  std::map<std::string, CallNodes> calls_;             // by the text of the call, which names its result
  std::vector<const CallNodes*> order_;
  std::map<std::string, size_t> held_;     // the place of each initializer that may be a parameter
  std::set<std::string> names_, results_;  // of all values and tensors; of what calls compute
  std::set<std::string> added_, left_, reported_;
  std::map<std::pair<std::string, Dims>, Operand> operands_;  // of a restored tensor, of dims
  std::map<std::string, std::set<std::string>> statistics_;   // running ones, by the norm that takes them
  std::vector<std::string> restored_;
  std::map<std::string, Tensor> sources_;
};

}  // namespace

void put_in_front(GraphBody& body, Restoration& restored, std::vector<OnnxNode> nodes, std::vector<Tensor> tensors,
                  const std::set<std::string>& gone) {
  std::erase_if(body.initializers, [&](const Tensor& tensor) { return gone.contains(tensor.name); });
  std::ranges::move(tensors, std::back_inserter(body.initializers));
  restored.nodes.insert(restored.nodes.begin(), nodes.size(), std::nullopt);
  std::ranges::move(body.nodes, std::back_inserter(nodes));
  body.nodes = std::move(nodes);
}

Restoration restore_parameters(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                               const TensorReaders& readers) {
  if (signature.tensor_of_input.empty()) return {};
  name_repeated(body);
  Separation separation = separate_merged(body, signature, rules, readers.elements_of);
  Restoration restored = Restorer(body, signature, rules, readers.may_be_transposes).run();
  for (std::optional<size_t>& place : restored.nodes)
    if (place) place = separation.nodes[*place];
  restored.sources.merge(separation.sources);
  restored.separated = std::move(separation.values);
  separate_memories(body, signature, rules, restored);
  restore_split(body, signature, rules, restored);
  restore_recurrent(body, signature, rules, readers.elements_of, restored);
  restore_first_steps(body, signature, readers.elements_of, restored);
  restore_folded(body, signature, rules, readers.elements_of, restored);
  recompute_folded(body, signature, rules, readers.elements_of, restored);
  restore_parts(body, signature, rules, readers.elements_of, restored);
  return restored;
}

}  // namespace graphpipe::frontend
