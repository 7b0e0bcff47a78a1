// Loop and Scan with a number of iterations that the file fixes, or bounds: the body is lowered once for each
// iteration, and if data end a loop earlier, the remaining iterations change nothing. Loops over the bags of an
// nn.EmbeddingBag, one per sample, are in lower_bag.cpp.

#include <algorithm>
#include <set>
#include <string_view>

#include "frontend/chosen.h"

namespace graphpipe::frontend {
namespace {

using ir::ValueId;

int64_t count_nodes(const GraphBody& body) {
  int64_t count = 0;
  for (const OnnxNode& node : body.nodes) {
    ++count;
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) count += count_nodes(inner);
  }
  return count;
}

/// The initial value of a state. A weight is created before it gets another name, so that it stays a single parameter.
Result<Binding> first_state(NodeContext& context, size_t input) {
  if (context.input(input).data) {
    GP_TRY([[maybe_unused]] const ValueId made, context.value(input));
  }
  return context.input(input);
}

/// The names that bodies of nodes of this body define.
void add_names_within(const GraphBody& body, std::set<std::string_view>& names) {
  for (const OnnxNode& node : body.nodes)
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) {
        for (const Tensor& tensor : inner.initializers) names.insert(tensor.name);
        for (const ValueInfo& input : inner.inputs) names.insert(input.name);
        for (const OnnxNode& made : inner.nodes) names.insert(made.outputs.begin(), made.outputs.end());
        add_names_within(inner, names);
      }
}

class LoopBody {
 public:
  LoopBody(NodeContext& context, const GraphBody& body)
      : context_(context), lowering_(context.lowering()), body_(body) {}

  /// Lowers what is the same in every iteration: the constants, so that a weight among them is one parameter.
  Status begin() {
    for (const Tensor& tensor : body_.initializers) {
      GP_TRY(Binding binding, lowering_.tensor_binding(tensor, node_label(context_.node())));
      lowering_.bind(tensor.name, std::move(binding));
    }
    std::set<std::string_view> within;
    add_names_within(body_, within);
    for (const OnnxNode& node : body_.nodes) {
      (node.op == "Constant" ? constants_ : steps_).push_back(node);
      // What a branch before it calls so would be forgotten behind the branch, and the constant with it.
      if (node.op == "Constant" && !node.outputs.empty() && within.contains(node.outputs[0]))
        return context_.problem(Code::kBadModel,
                                text("has a body that defines ", quoted(ModelText(node.outputs[0])),
                                     " twice, once in a body of its own nodes"),
                                "export the model again");
    }
    lowering_.run(constants_);
    return Ok{};
  }

  /// Lowers one iteration. Returns whether its outputs are valid: if not, the failing nodes have been reported.
  Result<bool> iterate(std::vector<Binding> inputs) {
    if (!lowering_.may_unroll(1 + count_nodes(body_)))
      return context_.problem(
          Code::kLimitExceeded,
          text("its iterations have more than ", context_.limits().unrolled_nodes, " nodes together"),
          "use fewer iterations, or an operator that works on all of them, such as LSTM");
    lowering_.forget(steps_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].name = body_.inputs[i].name;
      lowering_.bind(body_.inputs[i].name, std::move(inputs[i]));
    }
    // The same nodes would fail in each iteration, even if no output needs them.
    const size_t known_problems = lowering_.problems().size();
    lowering_.run(steps_);
    return lowering_.problems().size() == known_problems &&
           std::ranges::none_of(body_.outputs, [&](const ValueInfo& output) {
             const Binding* made = lowering_.find(output.name);
             return made == nullptr || made->poisoned;
           });
  }

  /// Whether every iteration passes its condition on, unchanged except for its name.
  bool keeps_condition() const {
    std::string name = body_.outputs[0].name;
    for (auto node = body_.nodes.rbegin(); node != body_.nodes.rend(); ++node)
      if (node->op == "Identity" && node->outputs == std::vector{name} && node->inputs.size() == 1)
        name = node->inputs[0];
    return name == body_.inputs[1].name;
  }

  Binding output(size_t i) { return *lowering_.find(body_.outputs[i].name); }
  Result<ValueId> output_value(size_t i) {
    return lowering_.value_of(*lowering_.find(body_.outputs[i].name), context_.node());
  }

 private:
  NodeContext& context_;
  Lowering& lowering_;
  const GraphBody& body_;
  std::vector<OnnxNode> constants_, steps_;
};

/// Stacks the results of the iterations along a new axis.
Status bind_stacked(NodeContext& context, size_t output, std::vector<ValueId> parts, int64_t given_axis) {
  if (parts.empty())
    return context.problem(Code::kUnsupportedOp, "has no iteration, so what it stacks has no shape", "drop the loop");
  const ir::Graph& graph = context.lowering().graph();
  GP_TRY(const int64_t axis, context.axis(given_axis, graph.value(parts.front()).type.shape.size() + 1));
  for (ValueId& part : parts) {
    GP_TRY(const auto deeper, context.emit("Unsqueeze", {part}, {{"axes", std::vector<int64_t>{axis}}}));
    part = deeper.front();
  }
  GP_TRY(const auto joined, context.emit("Concat", std::move(parts), {{"axis", axis}}));
  context.bind(output, joined.front());
  return Ok{};
}

Result<const GraphBody*> body_of(const NodeContext& context) {
  const Attribute* attribute = context.node().find("body");
  if (attribute == nullptr || attribute->graph.empty())
    return context.problem(Code::kBadModel, "lacks its body", "export the model again");
  return &attribute->graph[0];
}

Diagnostic wrong_counts(const NodeContext& context) {
  return context.problem(Code::kBadModel, "has other numbers of inputs or outputs than its body",
                         "export the model again");
}

Diagnostic unknown_condition(const NodeContext& context) {
  return context.problem(
      Code::kUnsupportedOp, "how often it runs depends on data, and the file has no bound for it",
      text("give it a number of iterations that it never exceeds, of at most ", context.limits().iterations));
}

/// Known at import time, and the same for every batch.
std::optional<int64_t> number_of(const Binding& binding) {
  if (!binding.known || binding.known->elements.size() != 1) return std::nullopt;
  const Number& number = binding.known->elements[0];
  if (!number.is_fixed() || number.floating) return std::nullopt;
  return number.whole;
}

Binding known_scalar(ir::DType type, int64_t number) {
  Binding binding;
  binding.type = {type, {}};
  binding.known = Known::scalar(type, Number::of_whole(number));
  return binding;
}

/// The value of a condition; not if it is computed from a weight, which training changes. A number of iterations never
/// is.
std::optional<int64_t> decision_of(const Binding& binding) { return binding.leaf ? std::nullopt : number_of(binding); }

class UnrolledLoop {
 public:
  UnrolledLoop(NodeContext& context, const GraphBody& body) : context_(context), body_(body), steps_(context, body) {}

  Status run() {
    const size_t inputs = context_.node().inputs.size();
    if (inputs < 2 || body_.inputs.size() != inputs || body_.outputs.size() < inputs - 1 ||
        context_.node().outputs.size() + 1 > body_.outputs.size())
      return wrong_counts(context_);
    for (size_t i = 2; i < inputs; ++i) {
      GP_TRY(Binding state, first_state(context_, i));
      carried_.push_back(std::move(state));
    }
    stacked_.resize(body_.outputs.size() - 1 - carried_.size());
    GP_TRY_VOID(steps_.begin());
    GP_TRY(const bool sound, iterate());
    if (sound) return bind_outputs();
    context_.lowering().poison(context_.node());
    return Ok{};
  }

 private:
  Result<bool> iterate() {
    std::optional<int64_t> limit =
        context_.has_input(0) ? number_of(context_.input(0)) : context_.limits().iterations + 1;
    // The body of ONNX's Range compares its bounds, from which it computes its iterations: bounds are not weights.
    const bool is_counted = context_.has_input(0) && context_.input(0).leaf;
    std::optional<int64_t> goes_on = 1;
    if (context_.has_input(1)) goes_on = is_counted ? number_of(context_.input(1)) : decision_of(context_.input(1));
    if (!goes_on) {
      GP_TRY(still_runs_, context_.value(1));
      goes_on = 1;
    }
    if (!limit) return unknown_condition(context_);
    // A loop that no iteration can end is rejected before any is lowered.
    const bool is_long = *limit > context_.limits().iterations;
    if (is_long && *goes_on != 0 && !still_runs_.valid() && steps_.keeps_condition()) return too_many_iterations();
    for (int64_t i = 0; i < *limit && *goes_on != 0; ++i) {
      if (still_runs_.valid() && is_long) return unknown_condition(context_);
      if (i >= context_.limits().iterations) return too_many_iterations();
      const size_t first = context_.lowering().graph().node_count();
      GP_TRY(const bool sound, iterate_once(i));
      if (!sound) return false;
      GP_TRY_VOID(take_results(first));
      GP_TRY(goes_on, condition_after());
    }
    return true;
  }

  Diagnostic too_many_iterations() const {
    return context_.problem(Code::kLimitExceeded, text("has more than ", context_.limits().iterations, " iterations"),
                            "use fewer, or an operator that works on all of them");
  }

  Result<bool> iterate_once(int64_t i) {
    std::vector<Binding> inputs{known_scalar(ir::DType::kInt64, i), known_scalar(ir::DType::kBool, 1)};
    inputs.insert(inputs.end(), carried_.begin(), carried_.end());
    if (!still_runs_.valid()) return steps_.iterate(std::move(inputs));
    Gates gates(context_, still_runs_, true);
    GP_TRY_VOID(gates.close(body_));
    for (size_t c = 0; c < carried_.size(); ++c) {
      GP_TRY(inputs[2 + c], gates.gated(carried_[c]));
    }
    const Result<bool> sound = steps_.iterate(std::move(inputs));
    gates.open();
    return sound;
  }

  /// The iteration's results, or the previous values if data had ended the loop.
  Status take_results(size_t first) {
    if (still_runs_.valid()) GP_TRY_VOID(expect_no_effect(context_, first));
    for (size_t c = 0; c < carried_.size(); ++c) {
      if (!still_runs_.valid()) {
        carried_[c] = steps_.output(1 + c);
        continue;
      }
      GP_TRY(const ValueId after, steps_.output_value(1 + c));
      GP_TRY(const ValueId before, context_.lowering().value_of(carried_[c], context_.node()));
      Binding result;
      GP_TRY(result.value, chosen(context_, still_runs_, after, before));
      result.type = context_.lowering().graph().value(result.value).type;
      carried_[c] = std::move(result);
    }
    if (still_runs_.valid() && !stacked_.empty())
      return context_.problem(Code::kUnsupportedOp, "how many rows it stacks depends on data",
                              "stack a fixed number of rows, and a mask of those that count");
    for (size_t s = 0; s < stacked_.size(); ++s) {
      GP_TRY(const ValueId part, steps_.output_value(1 + carried_.size() + s));
      stacked_[s].push_back(part);
    }
    return Ok{};
  }

  /// 0 if the file ends the loop; if data may end it, `still_runs_` tells whether they have.
  Result<std::optional<int64_t>> condition_after() {
    const std::optional<int64_t> known = decision_of(steps_.output(0));
    if (known) return known;
    GP_TRY(const ValueId condition, steps_.output_value(0));
    if (still_runs_.valid()) {
      GP_TRY(const auto both, context_.emit("And", {still_runs_, condition}, {}));
      still_runs_ = both.front();
    } else {
      still_runs_ = condition;
    }
    return std::optional<int64_t>(1);
  }

  Status bind_outputs() {
    for (size_t i = 0; i < context_.node().outputs.size(); ++i) {
      if (!context_.has_output(i)) continue;
      if (i >= carried_.size()) {
        GP_TRY_VOID(bind_stacked(context_, i, std::move(stacked_[i - carried_.size()]), 0));
        continue;
      }
      carried_[i].name = context_.node().outputs[i];
      context_.lowering().bind(context_.node().outputs[i], std::move(carried_[i]));
    }
    return Ok{};
  }

  NodeContext& context_;
  const GraphBody& body_;
  LoopBody steps_;
  std::vector<Binding> carried_;
  std::vector<std::vector<ValueId>> stacked_;
  /// A scalar bool; invalid as long as the file alone decides that the loop continues.
  ValueId still_runs_;
};

class UnrolledScan {
 public:
  UnrolledScan(NodeContext& context, const GraphBody& body) : context_(context), body_(body), steps_(context, body) {}

  Status run() {
    const auto scanned = context_.int_attribute("num_scan_inputs", 0);
    const size_t inputs = context_.node().inputs.size(), outputs = context_.node().outputs.size();
    if (scanned < 1 || static_cast<size_t>(scanned) > inputs || body_.inputs.size() != inputs ||
        body_.outputs.size() != outputs || outputs < inputs - static_cast<size_t>(scanned))
      return wrong_counts(context_);
    states_ = inputs - static_cast<size_t>(scanned);
    for (size_t i = 0; i < states_; ++i) {
      GP_TRY(Binding state, first_state(context_, i));
      carried_.push_back(std::move(state));
    }
    for (size_t i = states_; i < inputs; ++i) GP_TRY_VOID(cut(i));
    stacked_.resize(outputs - states_);
    GP_TRY_VOID(steps_.begin());
    for (size_t step = 0; step < parts_.front().size(); ++step) {
      GP_TRY(const bool sound, take(step));
      if (!sound) {
        context_.lowering().poison(context_.node());
        return Ok{};
      }
    }
    return bind_outputs();
  }

 private:
  /// The i-th entry of a list with one entry per scanned input or output.
  int64_t entry(std::string_view attribute, size_t i) const {
    const std::vector<int64_t> list = context_.ints_attribute(attribute);
    return i < list.size() ? list[i] : 0;
  }

  /// The slices of input i, in the order of the iterations.
  Status cut(size_t i) {
    GP_TRY(const int64_t axis, context_.axis(entry("scan_input_axes", i - states_), context_.rank(i)));
    const ir::Dim size = context_.type(i).shape[static_cast<size_t>(axis)];
    if (!size.is_fixed())
      return context_.problem(Code::kMixesSamples, "goes through the samples of a batch one after the other",
                              "scan along another axis, or add --one-sample if the file is one sample as a whole");
    if (size.factor < 1 || size.factor > context_.limits().iterations ||
        (!parts_.empty() && std::ssize(parts_.front()) != size.factor))
      return context_.problem(Code::kLimitExceeded, text("has ", size.factor, " iterations in its input ", i),
                              text("each input must have as many, from 1 to ", context_.limits().iterations));
    GP_TRY(const ValueId whole, context_.value(i));
    const auto count = static_cast<size_t>(size.factor);
    GP_TRY(std::vector<ValueId> parts,
           context_.emit("Split", {whole}, {{"axis", axis}, {"sizes", std::vector<int64_t>(count, 1)}}, count));
    for (ValueId& part : parts) {
      GP_TRY(const auto flat, context_.emit("Squeeze", {part}, {{"axes", std::vector<int64_t>{axis}}}));
      part = flat.front();
    }
    if (entry("scan_input_directions", i - states_) != 0) std::ranges::reverse(parts);
    parts_.push_back(std::move(parts));
    return Ok{};
  }

  Result<bool> take(size_t step) {
    std::vector<Binding> inputs = carried_;
    for (const std::vector<ValueId>& parts : parts_) {
      Binding binding;
      binding.value = parts[step];
      binding.type = context_.lowering().graph().value(parts[step]).type;
      inputs.push_back(std::move(binding));
    }
    GP_TRY(const bool sound, steps_.iterate(std::move(inputs)));
    if (!sound) return false;
    for (size_t i = 0; i < states_; ++i) carried_[i] = steps_.output(i);
    for (size_t i = 0; i < stacked_.size(); ++i) {
      GP_TRY(const ValueId part, steps_.output_value(states_ + i));
      stacked_[i].push_back(part);
    }
    return true;
  }

  Status bind_outputs() {
    for (size_t i = 0; i < context_.node().outputs.size(); ++i) {
      if (!context_.has_output(i)) continue;
      if (i < states_) {
        carried_[i].name = context_.node().outputs[i];
        context_.lowering().bind(context_.node().outputs[i], std::move(carried_[i]));
        continue;
      }
      std::vector<ValueId>& parts = stacked_[i - states_];
      if (entry("scan_output_directions", i - states_) != 0) std::ranges::reverse(parts);
      GP_TRY_VOID(bind_stacked(context_, i, std::move(parts), entry("scan_output_axes", i - states_)));
    }
    return Ok{};
  }

  NodeContext& context_;
  const GraphBody& body_;
  LoopBody steps_;
  size_t states_ = 0;
  std::vector<Binding> carried_;
  std::vector<std::vector<ValueId>> parts_, stacked_;
};

/// Whether the number of iterations does not grow with the batch, as that of a loop over bags does.
bool is_fixed(NodeContext& context, const GraphBody& body) {
  if (context.has_input(0)) return number_of(context.input(0)).has_value();
  return std::ranges::none_of(body.nodes, [&](const OnnxNode& node) {
    const Binding* limit = node.inputs.size() == 2 ? context.lowering().find(node.inputs[1]) : nullptr;
    return node.op == "Less" && (limit == nullptr || !number_of(*limit));
  });
}

Status lower_loop(NodeContext& context) {
  GP_TRY(const GraphBody* body, body_of(context));
  return is_fixed(context, *body) ? UnrolledLoop(context, *body).run() : lower_loop_over_bags(context);
}

Status lower_scan(NodeContext& context) {
  GP_TRY(const GraphBody* body, body_of(context));
  return UnrolledScan(context, *body).run();
}

}  // namespace

std::vector<HandlerEntry> loop_handlers() { return {{"Loop", lower_loop}, {"Scan", lower_scan}}; }

}  // namespace graphpipe::frontend
