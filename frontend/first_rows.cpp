#include "frontend/first_rows.h"

#include <algorithm>
#include <cstdint>

#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::ValueId;

/// The elements [low, high) of an axis other than the row axis.
struct RowWindow {
  size_t axis = 0;
  int64_t low = 0, high = 0;
};

struct RowPart {
  ValueId value;
  std::optional<RowWindow> window;
};

/// The parts of a Concat's operands that lie in the window; false if rows are concatenated.
bool push_joined(const ir::Graph& graph, const ir::Node& node, const RowPart& part, std::vector<RowPart>& open) {
  const auto rank = static_cast<int64_t>(graph.value(part.value).type.shape.size());
  const int64_t given = node.attributes.get_int("axis", 0), axis = given < 0 ? given + rank : given;
  if (axis <= 0 || axis >= rank) return false;
  const bool cuts = part.window && part.window->axis == static_cast<size_t>(axis);
  int64_t offset = 0;
  for (const ValueId input : node.inputs) {
    const Dim size = graph.value(input).type.shape[static_cast<size_t>(axis)];
    if (!size.is_fixed()) return false;
    RowPart operand{input, part.window};
    if (cuts) {
      operand.window->low = std::max(part.window->low - offset, int64_t{0});
      operand.window->high = std::min(part.window->high - offset, size.factor);
    }
    if (!cuts || operand.window->low < operand.window->high) open.push_back(operand);
    offset += size.factor;
  }
  return true;
}

/// The operands of a node that computes element by element, or repeats elements, by the rules of broadcasting.
void push_broadcast(const ir::Graph& graph, const ir::Node& node, const RowPart& part, std::vector<RowPart>& open) {
  for (const ValueId input : node.inputs) {
    if (!input.valid()) continue;
    const ir::Shape& shape = graph.value(input).type.shape;
    const bool is_all = part.window && part.window->axis < shape.size() && shape[part.window->axis] == Dim::fixed(1);
    open.push_back({input, is_all ? std::nullopt : part.window});
  }
}

/// The numbers of the rows that a node looks up in a table; none of another node.
std::optional<ValueId> looked_up(const ir::Node& node) {
  return node.op == "Gather" && node.attributes.get_int("axis", 0) == 0 ? std::optional(node.inputs[1]) : std::nullopt;
}

/// The operands of a product, or of what takes parts of its rows, that have its rows; false of other nodes.
bool push_rows(const ir::Graph& graph, const ir::Node& node, size_t rank, std::vector<RowPart>& open) {
  const auto rank_of = [&](size_t input) { return graph.value(node.inputs[input]).type.shape.size(); };
  if (rank < 2 || rank_of(0) != rank || node.attributes.get_int("transA", 0) != 0) return false;
  if (node.op == "Split" && node.attributes.get_int("axis", 0) % static_cast<int64_t>(rank) == 0) return false;
  open.push_back({node.inputs[0], std::nullopt});
  // Of two axes, those of the other operand are not those of the rows.
  if (node.op == "MatMul" && rank > 2) open.push_back({node.inputs[1], std::nullopt});
  if (node.op == "Gemm" && node.inputs.size() > 2 && node.inputs[2].valid())
    open.push_back({node.inputs[2], std::nullopt});
  return true;
}

/// Whether it is a constant that nodes fill with one number. A tensor of the file may train.
bool is_filled(Lowering& lowering, ValueId value) {
  return std::ranges::any_of(lowering.param_origins(), [&](const auto& each) {
    const ir::Param& param = lowering.graph().param(each.first);
    return param.value == value && each.second == ParamOrigin::kFolded &&
           std::holds_alternative<ir::FilledData>(param.data);
  });
}

/// Whether the window, or without one the whole row, is the same in each row of the value's axis 0. The numbers of rows
/// that are looked up may not be looked up in turn.
bool rows_are_equal(Lowering& lowering, ValueId value, std::optional<RowWindow> window, bool may_look_up = true) {
  constexpr int kMaxParts = 256;
  const ir::Graph& graph = lowering.graph();
  const size_t rank = graph.value(value).type.shape.size();
  std::vector<RowPart> open{{value, window}};
  for (int parts = 0; !open.empty(); ++parts) {
    const RowPart part = open.back();
    open.pop_back();
    const ir::Shape& shape = graph.value(part.value).type.shape;
    if (shape.size() < rank || shape[0] == Dim::fixed(1)) continue;
    const ir::NodeId producer = graph.value(part.value).producer;
    if (parts == kMaxParts || shape.size() > rank) return false;
    if (!producer.valid()) {
      if (!is_filled(lowering, part.value)) return false;
      continue;
    }
    const ir::Node& node = graph.node(producer);
    const ops::OpDef* entry = ops::find_op(node.op);
    if (entry == nullptr || entry->is_random) return false;
    if (const std::optional<ValueId> numbers = looked_up(node)) {
      const bool has_rows = !graph.value(*numbers).type.shape.empty();
      if (!may_look_up || !has_rows || !rows_are_equal(lowering, *numbers, std::nullopt, false)) return false;
    } else if (node.op == "Concat") {
      if (!push_joined(graph, node, part, open)) return false;
    } else if (entry->dependence == ops::Dependence::kRepeated || entry->dependence == ops::Dependence::kElement) {
      push_broadcast(graph, node, part, open);
    } else if (node.op == "MatMul" || node.op == "Gemm" || node.op == "Split") {
      if (!push_rows(graph, node, shape.size(), open)) return false;
    } else {
      return false;
    }
  }
  return true;
}

/// Each sample's own first rows instead of the first of all. Needs: all of them are equal.
Result<ValueId> own_rows(NodeContext& context, ValueId source, const ir::Shape& cut) {
  const ir::Shape whole = context.lowering().graph().value(source).type.shape;
  ir::Shape apart = whole;
  apart[0] = Dim::fixed(whole[0].factor);
  apart.insert(apart.begin(), Dim::batch());
  GP_TRY(const auto samples, context.emit("Reshape", {source}, {{"shape", std::move(apart)}}));
  GP_TRY(const ir::ValueId first, context.emit_slice(samples[0], 1, 0, cut[0].factor));
  GP_TRY(const auto rows, context.emit("Reshape", {first}, {{"shape", cut}}));
  return rows[0];
}

std::optional<RowWindow> row_window(int64_t axis, int64_t rank, int64_t low, int64_t high, const ir::Shape& shape) {
  if (axis < 0) axis += rank;
  if (axis <= 0 || axis >= rank || !shape[static_cast<size_t>(axis)].is_fixed()) return std::nullopt;
  const int64_t size = shape[static_cast<size_t>(axis)].factor;
  if (low < 0) low += size;
  if (high < 0) high += size;
  high = std::min(high, size);
  if (low < 0 || low >= high) return std::nullopt;
  return RowWindow{static_cast<size_t>(axis), low, high};
}

/// What a Gather with a scalar index, or a Slice of one axis, reads of each row.
std::optional<RowWindow> read_window(NodeContext& context) {
  const ir::Shape shape = context.type(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const auto only = [&](size_t input) -> std::optional<int64_t> {
    const Known* known = context.known(input);
    if (known == nullptr || known_count(known->shape) != 1 || !known->element(0).is_fixed()) return std::nullopt;
    return known->element(0).whole;
  };
  if (context.node().op == "Gather") {
    const std::optional<int64_t> at = only(1);
    if (!at || *at == INT64_MAX) return std::nullopt;
    return row_window(context.int_attribute("axis", 0), rank, *at, *at == -1 ? INT64_MAX : *at + 1, shape);
  }
  const std::optional<int64_t> low = only(1), high = only(2), axis = context.has_input(3) ? only(3) : 0;
  const std::optional<int64_t> step = context.has_input(4) ? only(4) : 1;
  if (!low || !high || !axis || step != 1) return std::nullopt;
  return row_window(*axis, rank, *low, *high, shape);
}

}  // namespace

bool rows_are_equal(Lowering& lowering, ValueId value) { return rows_are_equal(lowering, value, std::nullopt); }

bool takes_first_rows(NodeContext& context) {
  const Known *starts = context.known(1), *ends = context.known(2);
  if (starts == nullptr || ends == nullptr || context.rank(0) == 0) return false;
  if (known_count(starts->shape) != 1 || known_count(ends->shape) != 1) return false;
  for (const size_t i : {size_t{3}, size_t{4}}) {
    if (!context.has_input(i)) continue;
    const Known* number = context.known(i);
    if (number == nullptr || known_count(number->shape) != 1) return false;
    if (number->element(0) != Number::of_whole(i == 3 ? 0 : 1)) return false;
  }
  const Dim rows = context.type(0).shape[0];
  const Number end = ends->element(0);
  return starts->element(0) == Number::of_whole(0) && rows.power == 1 && end.power == 1 && 0 < end.whole &&
         end.whole < rows.factor;
}

Status take_first_rows(NodeContext& context) {
  GP_TRY(const ValueId source, context.value(0));
  ir::TensorType type = context.type(0);
  type.shape[0] = Dim::batch(context.known(2)->element(0).whole);
  if (rows_are_equal(context.lowering(), source, std::nullopt)) {
    GP_TRY(const ValueId rows, own_rows(context, source, type.shape));
    context.bind(0, rows);
    return Ok{};
  }
  Binding binding;
  binding.type = std::move(type);
  binding.first_rows_of = source;
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

Status read_first_rows(NodeContext& context, Handler handler) {
  const Binding first = context.input(0);
  const std::optional<RowWindow> window = read_window(context);
  if (!window || !rows_are_equal(context.lowering(), first.first_rows_of, window)) return refuse_first_rows(context);
  Binding own;
  own.type = first.type;
  GP_TRY(own.value, own_rows(context, first.first_rows_of, first.type.shape));
  OnnxNode node = context.node();
  node.inputs[0] = context.lowering().unused_name(text(node.outputs[0], " of each sample's own rows"));
  own.name = node.inputs[0];
  context.lowering().bind(node.inputs[0], std::move(own));
  NodeContext reader(context.lowering(), node);
  return handler(reader);
}

Diagnostic refuse_first_rows(const NodeContext& context) {
  return context.problem(
      Code::kMixesSamples,
      "reads the first rows of an axis that holds several rows of each sample: all of them belong to "
      "the first samples, and they are not the same in every sample",
      "take rows of each sample, as in x.reshape(batch, rows, ...)[:, 0]");
}

}  // namespace graphpipe::frontend
