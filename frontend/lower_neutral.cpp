// Operands that have no effect, and choices between equals. Of operands only those computed from shapes are considered,
// such as the mask of an Attention that hides nothing in that operator's body: a tensor of zeros that the file stores
// may be there to be trained.

#include <algorithm>

#include "frontend/exported_call.h"
#include "frontend/lower_edges.h"
#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

/// The value of all elements of the operand, if shapes alone determine it.
std::optional<double> counted(NodeContext& context, size_t i) {
  const Known* operand = context.known(i);
  if (operand == nullptr || !operand->uniform || !context.input(i).from_shapes || context.input(i).leaf)
    return std::nullopt;
  return operand->elements[0].factor();
}

/// Binds the output to input i, if that has the broadcast shape of all inputs.
bool passes_on(NodeContext& context, size_t i) {
  ir::Shape joined;
  for (size_t other = 0; other < context.node().inputs.size(); ++other) {
    const std::optional<ir::Shape> wider = broadcast(joined, context.type(other).shape);
    if (!wider) return false;
    joined = *wider;
  }
  if (context.type(i).shape != joined) return false;
  context.bind_alias(i);
  return true;
}

Status lower_add(NodeContext& context) {
  if (context.node().inputs.size() == 2)
    for (const size_t i : {0, 1})
      if (counted(context, i) == 0.0 && passes_on(context, 1 - i)) return Ok{};
  return lower_plain(context);
}

/// Whether the exporter's text is this number, or nothing because it is the default.
bool is_default(std::string_view argument, double number) {
  double found = number;
  return (argument.empty() || read_number(argument, found)) && found == number;
}

/// Whether this chooses between softplus and the line beyond its threshold, where PyTorch had its default factor and
/// threshold: the operator has both in itself.
bool is_softplus(NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  return call && call->target == "aten.softplus.default" && is_default(call->argument(1), 1) &&
         is_default(call->argument(2), 20) && call->keywords.empty() && context.node().inputs.size() == 3 &&
         context.type(1).shape == context.type(2).shape;
}

Status lower_where(NodeContext& context) {
  GP_TRY(const bool is_lowered, lower_choice_at_edge(context));
  if (is_lowered) return Ok{};
  if (is_softplus(context)) {
    GP_TRY(const ir::ValueId x, context.value(1));
    return context.emit_outputs("Softplus", {x}, {});
  }
  if (context.node().inputs.size() == 3)
    if (const std::optional<double> condition = counted(context, 0))
      if (passes_on(context, *condition != 0 ? 1 : 2)) return Ok{};
  return lower_plain(context);
}

}  // namespace

std::vector<HandlerEntry> neutral_handlers() { return {{"Add", lower_add}, {"Where", lower_where}}; }

}  // namespace graphpipe::frontend
