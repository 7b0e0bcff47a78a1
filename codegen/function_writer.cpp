#include "codegen/function_writer.h"

#include <algorithm>

#include "codegen/lifetimes.h"
#include "codegen/node_emitter.h"
#include "ops/emit_helpers.h"
#include "ops/op_def.h"
#include "support/check.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ParamId;
using ir::ValueId;

constexpr size_t kCommentLength = 90;

/// The comment beside a line: which node, which ONNX node it came from, which type.
std::string comment_of(const Graph& graph, NodeId id, const Naming& naming) {
  const Node& node = graph.node(id);
  const std::string type = type_text(graph.value(node.outputs.front()).type);
  if (!naming.tells_nodes()) return text("  // ", node.op, ": ", type);
  std::string result = text("  // n", id);
  const NodeId origin = node.serves.valid() ? node.serves : id;
  if (node.serves.valid()) result += text(", for n", node.serves);
  const std::vector<ModelText>& origins = graph.node(origin).origins;
  if (!origins.empty() && !origins.front().empty()) {
    std::string name = CppComment::encode(origins.front()).str();
    if (name.size() > kCommentLength) name = "..." + name.substr(name.size() - kCommentLength);
    result += " " + name;
  }
  return result + ": " + type;
}

class FunctionWriter {
 public:
  FunctionWriter(const Graph& graph, std::span<const Step> steps, const FunctionOptions& options)
      : graph_(graph),
        steps_(steps),
        options_(options),
        naming_(options.naming == nullptr ? naming_by_ids_ : *options.naming),
        param_of_(ir::params_of_values(graph)),
        lifetimes_(graph, steps, options) {}

  FunctionText write() {
    if (options_.marks != nullptr) line("graphpipe::runtime::begin_marks();");
    for (const Load& load : options_.loads) write_load(load);
    for (size_t i = 0; i < steps_.size(); ++i) {
      write_step(i);
      if (i + 1 < steps_.size()) write_mark(steps_[i]);
    }
    write_stores();
    for (const Place& place : options_.clears) line(naming_.place(place) + ".reset();");
    if (!steps_.empty()) write_mark(steps_.back());
    return {options_.parameters, prologue() + body_, std::move(headers_)};
  }

 private:
  void line(std::string_view code) {
    body_ += "  ";
    body_ += code;
    body_ += '\n';
  }

  void write_load(const Load& load) {
    const std::string name = naming_.value(load.value), place = naming_.place(load.place);
    if (load.take) line(text("at::Tensor ", name, " = std::move(", place, ");"));
    else line(text("const at::Tensor& ", name, " = ", place, ";"));
  }

  void write_step(size_t index) {
    const Step& step = steps_[index];
    if (write_accumulating_node(index)) return;
    std::vector<ValueId> made = step.zero.valid()           ? write_zero(step)
                                : step.only_operand.valid() ? write_passing_on(step)
                                                            : write_node(step.node, lifetimes_.overwrites_input(index));
    for (const Accumulation* sum : lifetimes_.sums_of(made)) write_accumulation(*sum);
    for (const Store& store : options_.stores)
      if (!store.condition.empty() && std::ranges::find(made, store.value) != made.end())
        line(text("if (", store.condition, ") ", naming_.place(store.place), " = ", naming_.value(store.value),
                  store.copies ? ".clone();" : ";"));
    if (index + 1 < steps_.size()) write_releases(index, made);
  }

  void write_mark(const Step& step) {
    if (options_.marks == nullptr) return;
    headers_.insert("runtime/profiling/marks.h");
    const Node& node = graph_.node(step.node);
    line(text("graphpipe::runtime::mark(",
              options_.marks->add(node.serves.valid() ? node.serves : step.node, options_.phase), ");"));
  }

  std::vector<ValueId> write_passing_on(const Step& step) {
    const ValueId output = graph_.node(step.node).outputs.front();
    line(text("at::Tensor ", naming_.value(output), " = ", naming_.value(step.only_operand), ";  // ",
              naming_.tells_nodes() ? text("n", step.node, ": ") : "", "the other summands belong to other stages"));
    return {output};
  }

  std::vector<ValueId> write_zero(const Step& step) {
    const ir::TensorType& type = graph_.value(step.zero).type;
    std::string dims;
    for (const ir::Dim dim : type.shape) dims += text(dims.empty() ? "" : ", ", dim_text(dim));
    headers_.insert({"ATen/ops/zeros.h", std::string(kTensorOptionsHeader)});
    line(text("at::Tensor ", naming_.value(step.zero), " = at::zeros({", dims, "}, ", options_text(type.dtype),
              ");  // ", naming_.tells_nodes() ? text("for n", step.node, ": ") : "", "arises in other stages"));
    return {step.zero};
  }

  std::vector<ValueId> write_node(NodeId id, bool in_place) {
    const Node& node = graph_.node(id);
    const ops::OpDef* entry = ops::find_op(node.op);
    GP_CHECK(entry != nullptr && entry->emit != nullptr);
    NodeEmitter emitter(graph_, id, options_.weight_index, param_of_, naming_, headers_);
    if (in_place) entry->emit_in_place(emitter);
    else entry->emit(emitter);
    write_lines(emitter, id);
    std::vector<ValueId> made;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (emitter.assigned(i)) made.push_back(node.outputs[i]);
    return made;
  }

  /// Writes a node whose only result is a share of a gradient, if its entry can add the share to the sum directly.
  bool write_accumulating_node(size_t index) {
    const Accumulation* sum = lifetimes_.added_in_place(index);
    if (sum == nullptr) return false;
    const Step& step = steps_[index];
    NodeEmitter emitter(graph_, step.node, options_.weight_index, param_of_, naming_, headers_);
    ops::find_op(graph_.node(step.node).op)->accumulate(emitter, naming_.place(sum->place));
    write_lines(emitter, step.node);
    if (index + 1 < steps_.size()) write_releases(index, {});
    return true;
  }

  void write_lines(const NodeEmitter& emitter, NodeId id) {
    std::vector<std::string> lines = emitter.lines();
    GP_CHECK(!lines.empty());
    lines.front() += comment_of(graph_, id, naming_);
    for (const std::string& code : lines) line(code);
  }

  void write_accumulation(const Accumulation& sum) {
    headers_.insert("runtime/add_share.h");
    line(text("graphpipe::runtime::add_share(", naming_.place(sum.place), ", ", naming_.value(sum.value), ");"));
  }

  void write_releases(size_t index, const std::vector<ValueId>& made) {
    std::string code;
    for (ValueId value : lifetimes_.ended(index, made))
      code += text(code.empty() ? "" : " ", naming_.value(value), ".reset();");
    if (!code.empty()) line(code);
  }

  /// Writes the stores at the end of the function. The last store of a value moves it, unless it is only borrowed.
  void write_stores() {
    for (size_t i = 0; i < options_.stores.size(); ++i) {
      const Store& store = options_.stores[i];
      if (!store.condition.empty()) continue;
      const auto later = options_.stores.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      const bool again = std::any_of(later, options_.stores.end(), [&](const Store& other) {
        return other.value == store.value && other.condition.empty();
      });
      const std::string name = naming_.value(store.value);
      const bool copies = again || lifetimes_.is_borrowed(store.value);
      line(text(naming_.place(store.place), " = ", copies ? name : text("std::move(", name, ")"), ";"));
    }
  }

  /// Declares short names for what the body uses.
  std::string prologue() {
    std::string result;
    const auto uses = [&](std::string_view word) { return body_.find(word) != std::string::npos; };
    if (uses("w[")) result += "  const at::Tensor* w = a.weights;\n";
    if (uses("slot[")) result += "  at::Tensor* slot = a.slot;\n";
    result += "  [[maybe_unused]] const int64_t b = a.samples;\n";
    return result;
  }

  const Graph& graph_;
  std::span<const Step> steps_;
  const FunctionOptions& options_;
  Naming naming_by_ids_;
  Naming& naming_;
  IdMap<ValueId, ParamId> param_of_;
  Lifetimes lifetimes_;
  std::string body_;
  std::set<std::string> headers_;
};

}  // namespace

std::string FunctionText::definition(std::string_view name) const {
  return text("void ", name, "(", parameters, ") {\n", body, "}\n");
}

std::string FunctionText::declaration(std::string_view name) const {
  return text("void ", name, "(", parameters, ");\n");
}

FunctionText write_function(const Graph& graph, std::span<const Step> steps, const FunctionOptions& options) {
  return FunctionWriter(graph, steps, options).write();
}

std::string include_lines(const std::set<std::string>& headers) {
  std::string aten, own;
  std::set<std::string> all = headers;
  all.insert("ATen/core/Tensor.h");
  all.insert("runtime/program.h");
  for (const std::string& header : all) {
    const bool is_own = header.starts_with("runtime/") || header.starts_with("wire/");
    (is_own ? own : aten) += is_own ? text("#include \"", header, "\"\n") : text("#include <", header, ">\n");
  }
  return aten + "\n#include <utility>\n\n" + own;
}

FunctionText write_whole_function(const Graph& graph, MarkTable* marks) {
  FunctionOptions options;
  options.marks = marks;
  const IdMap<ValueId, ParamId> param_of = ir::params_of_values(graph);
  IdSet<ValueId> read(graph.value_count());
  std::vector<Step> steps;
  for (NodeId node : graph.node_ids()) {
    steps.push_back({node, {}, {}});
    for (ValueId input : graph.node(node).inputs)
      if (input.valid()) read.insert(input);
  }
  for (const ir::Output& output : graph.outputs()) read.insert(output.value);
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (read.contains(graph.inputs()[i].value))
      options.loads.push_back({graph.inputs()[i].value, {Place::Array::kSlot, i}, false});
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    if (!param_of[graph.outputs()[i].value].valid())
      options.stores.push_back({graph.outputs()[i].value, {Place::Array::kSlot, graph.inputs().size() + i}});
  for (ParamId param : graph.param_ids()) options.weight_index.emplace(param, param.index());
  return write_function(graph, steps, options);
}

}  // namespace graphpipe::codegen
