#include "frontend/lower_clip.h"

#include <algorithm>
#include <vector>

#include "frontend/exported_call.h"

namespace graphpipe::frontend {
namespace {

constexpr size_t kMaxSteps = 64;

/// Whether a parameter that trains is among what this value is computed from; so it is where the way there is long.
bool is_of_trained(NodeContext& context, ir::ValueId value) {
  const ir::Graph& graph = context.lowering().graph();
  std::vector<ir::ValueId> from = {value};
  for (size_t at = 0; at < from.size(); ++at) {
    if (from.size() > kMaxSteps) return true;
    const ir::NodeId producer = graph.value(from[at]).producer;
    if (!producer.valid()) continue;
    for (const ir::ValueId input : graph.node(producer).inputs)
      if (input.valid()) from.push_back(input);
  }
  for (const ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const bool is_read = std::ranges::find(from, param.value) != from.end();
    if (is_read && context.lowering().scalar_trains(param.name.raw())) return true;
  }
  return false;
}

/// Whether a bound of a Clip is a regular value: computed from data, or trained, or computed from what is.
bool is_value(NodeContext& context, size_t i) {
  if (context.known(i) == nullptr) return true;
  const Binding& bound = context.input(i);
  if (!bound.leaf || !ir::is_floating(bound.type.dtype)) return false;
  if (bound.value.valid() && context.lowering().graph().value(bound.value).producer.valid())
    return is_of_trained(context, bound.value);
  return bound.origin == ParamOrigin::kInitializer && context.lowering().scalar_trains(bound.name);
}

/// Whether PyTorch computed it by an operator whose gradient is zero at the bounds; torch.clamp's is not.
bool is_hard_tanh(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  return call && (call->target.starts_with("aten.hardtanh") || call->target.starts_with("aten.relu6"));
}

/// torch.clamp with a bound that is a tensor: where x lies beyond it, value and gradient are the bound's.
Result<ir::ValueId> emit_bounded(NodeContext& context, ir::ValueId x, ir::ValueId bound, bool is_lower) {
  GP_TRY(const ir::ValueId is_beyond, context.emit_one(is_lower ? "Less" : "Greater", {x, bound}));
  return context.emit_one("Where", {is_beyond, bound, x});
}

/// Clip with constant bounds, where a missing one is infinite; others are compared with, in the order that Clip uses.
Status lower_clip(NodeContext& context) {
  struct Bound {
    size_t input;
    const char *attribute, *words;
  };
  GP_TRY(ir::ValueId value, context.value(0));
  ir::Attributes attributes;
  for (const Bound& bound : {Bound{1, "min", "lower bound"}, Bound{2, "max", "upper bound"}}) {
    if (!context.has_input(bound.input)) continue;
    if (ir::element_count(context.type(bound.input).shape) != ir::Dim::fixed(1))
      return context.problem(Code::kBadModel, text("its ", bound.words, " is no scalar"), "export again");
    if (!is_value(context, bound.input)) {
      GP_TRY(const std::vector<double> number, context.reals(bound.input, bound.words));
      attributes.set(bound.attribute, number[0]);
      continue;
    }
    GP_TRY(ir::ValueId limit, context.value(bound.input));
    if (context.rank(bound.input) > 0) {
      GP_TRY(limit, context.emit_one("Reshape", {limit}, {{"shape", ir::Shape()}}));
    }
    if (attributes.has("min")) {
      GP_TRY(value, context.emit_one("Clip", {value}, attributes));
      attributes = {};
    }
    GP_TRY(value, emit_bounded(context, value, limit, bound.input == 1));
  }
  if (!attributes.has("min") && !attributes.has("max")) return context.emit_outputs("Identity", {value}, {});
  const bool has_both = attributes.has("min") && attributes.has("max");
  return context.emit_outputs(has_both && is_hard_tanh(context) ? "HardTanh" : "Clip", {value}, std::move(attributes));
}

}  // namespace

Status lower_bounded(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  const bool is_clamp = call && call->target.starts_with("aten.clamp") && context.node().inputs.size() == 2 &&
                        ir::is_floating(context.type(0).dtype);
  if (!is_clamp) return lower_plain(context);
  const bool is_lower = context.node().op == "Max";
  GP_TRY(const ir::ValueId x, context.value(0));
  if (!is_value(context, 1) && ir::element_count(context.type(1).shape) == ir::Dim::fixed(1) &&
      context.rank(1) <= context.rank(0)) {
    GP_TRY(const std::vector<double> number, context.reals(1, "bound"));
    return context.emit_outputs("Clip", {x}, {{is_lower ? "min" : "max", number[0]}});
  }
  GP_TRY(const ir::ValueId bound, context.value(1));
  GP_TRY(const ir::ValueId result, emit_bounded(context, x, bound, is_lower));
  return context.emit_outputs("Identity", {result}, {});
}

std::vector<HandlerEntry> clip_handlers() { return {{"Clip", lower_clip}, {"Min", lower_bounded}}; }

}  // namespace graphpipe::frontend
