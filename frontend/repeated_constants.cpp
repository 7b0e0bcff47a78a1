#include "frontend/repeated_constants.h"

#include <algorithm>
#include <utility>

#include "frontend/first_rows.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;

bool broadcasts(const OnnxNode& node) {
  const ops::Dependence dependence = dependence_of(node.op);
  return dependence == ops::Dependence::kElement || dependence == ops::Dependence::kRepeated;
}

/// Whether a node takes places of each row, or writes to them, by numbers that the row has too.
bool takes_places(const OnnxNode& node) { return node.op == "GatherElements" || node.op == "ScatterElements"; }

/// Whether the rows of the operands meet each other, or are joined.
bool takes_rows_alike(const OnnxNode& node) { return broadcasts(node) || node.op == "Concat" || takes_places(node); }

/// How far from the last axis the batch of the operands, or of what an Expand is to fill, is; none if there is none.
std::optional<size_t> batch_from_end(Lowering& lowering, const OnnxNode& node, Dim batch = Dim::batch()) {
  for (const std::string& name : node.inputs) {
    const Binding* operand = name.empty() ? nullptr : lowering.find(name);
    if (operand == nullptr) continue;
    const bool is_target = node.op == "Expand" && &name == &node.inputs.back() && operand->known;
    const ir::Shape shape = is_target ? as_dims(*operand->known).value_or(ir::Shape{}) : operand->type.shape;
    const auto found = std::ranges::find(shape, batch);
    if (found != shape.end()) return static_cast<size_t>(shape.end() - found);
  }
  return std::nullopt;
}

/// Whether the axis is the batch of the export, and no axis before it has more than one part.
bool may_repeat(const Binding& operand, size_t from_end, int64_t samples) {
  const ir::Shape& shape = operand.type.shape;
  if (shape.size() < from_end) return false;
  const auto axis = shape.end() - static_cast<ptrdiff_t>(from_end);
  return *axis == Dim::fixed(samples) && std::all_of(shape.begin(), axis, [](Dim dim) { return dim == Dim::fixed(1); });
}

bool repeats(const Known& known, int64_t samples) {
  if (known.uniform) return true;
  const size_t part = known.elements.size() / static_cast<size_t>(samples);
  for (size_t i = part; i < known.elements.size(); ++i)
    if (!(known.elements[i] == known.elements[i - part])) return false;
  return true;
}

/// The first of `samples` equal parts.
ir::DataSource first_part(ir::DataSource data, int64_t samples) {
  if (auto* held = std::get_if<ir::InlineData>(&data))
    held->bytes.resize(held->bytes.size() / static_cast<size_t>(samples));
  if (auto* range = std::get_if<ir::FileRange>(&data)) range->length /= samples;
  return data;
}

/// Whether the tensor may be a weight of the module, whose shape is not ours to change. Only PyTorch's files tell.
bool may_be_weight(const Lowering& lowering, const Binding& operand) {
  return operand.data && ir::is_floating(operand.type.dtype) &&
         (!lowering.from_torch() || lowering.scalar_trains(operand.name));
}

/// The constant of one sample; none if those of the samples differ.
std::optional<Binding> of_one_sample(const Lowering& lowering, const Binding& operand, size_t from_end) {
  if (may_be_weight(lowering, operand)) return std::nullopt;
  const int64_t samples = lowering.traced_batch();
  const bool is_repeated = operand.data ? lowering.tensors().repeats(*operand.data, samples)
                                        : operand.known && repeats(*operand.known, samples);
  if (!is_repeated) return std::nullopt;
  Binding one = operand;
  one.type.shape[one.type.shape.size() - from_end] = Dim::fixed(1);
  if (one.data) one.data = first_part(std::move(*one.data), samples);
  one.value = {};
  if (one.known) {
    one.known->shape = one.type.shape;
    if (!one.known->uniform) one.known->elements.resize(one.known->elements.size() / static_cast<size_t>(samples));
  }
  return one;
}

/// The first row of what nodes make with equal rows, as from a token that is repeated; none where it is not.
Result<std::optional<Binding>> first_row(NodeContext& context, const Binding& operand, size_t from_end) {
  const ir::Shape& shape = operand.type.shape;
  const ir::Graph& graph = context.lowering().graph();
  if (!operand.value.valid() || from_end != shape.size() || !graph.value(operand.value).producer.valid() ||
      !rows_are_equal(context.lowering(), operand.value))
    return std::optional<Binding>();
  Binding row;
  GP_TRY(row.value, context.emit_slice(operand.value, 0, 0, 1));
  row.type = graph.value(row.value).type;
  return std::optional(std::move(row));
}

/// Whether the elements are 0, 1, .. n - 1: the number of each sample, with which an index picks from its own rows.
bool numbers_samples(const Binding& operand, int64_t samples) {
  if (!operand.known || operand.known->uniform || std::ssize(operand.known->elements) != samples) return false;
  for (int64_t i = 0; i < samples; ++i)
    if (!(operand.known->elements[static_cast<size_t>(i)] == Number::of_whole(i))) return false;
  return true;
}

/// The numbers of as many samples as there are.
Result<std::string> bind_numbers(NodeContext& context, const std::string& name, const Binding& operand,
                                 size_t from_end) {
  const ir::TensorType& type = operand.type;
  ir::Shape shape = type.shape;
  shape[shape.size() - from_end] = Dim::batch();
  GP_TRY(const ir::ValueId numbers,
         context.emit_one("Iota", {},
                          {{"shape", ir::Shape{Dim::batch()}}, {"to", std::string(ir::dtype_name(type.dtype))}}));
  GP_TRY(const ir::ValueId shaped, context.emit_one("Reshape", {numbers}, {{"shape", std::move(shape)}}));
  const std::string own = context.lowering().unused_name(name + " of all samples");
  context.lowering().bind_value(own, shaped);
  return own;
}

/// Binds what one sample has, repeated by the batch where the node does not broadcast, and returns its name.
Result<std::string> bind_own(NodeContext& context, const std::string& name, Binding one, size_t from_end) {
  Lowering& lowering = context.lowering();
  const std::string own = lowering.unused_name(name + " of a sample");
  if (broadcasts(context.node())) {
    lowering.bind(own, std::move(one));
    return own;
  }
  ir::Shape shape = one.type.shape;
  shape[shape.size() - from_end] = Dim::batch();
  GP_TRY(const ir::ValueId constant, lowering.value_of(one, context.node()));
  GP_TRY(const ir::ValueId repeated, context.emit_one("Expand", {constant}, {{"shape", std::move(shape)}}));
  lowering.bind_value(own, repeated);
  return own;
}

/// Whether a Concat joins along this axis, or places are those along it.
Result<bool> joins_along(const NodeContext& context, size_t rank, size_t from_end) {
  if (context.node().op != "Concat" && !takes_places(context.node())) return false;
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), rank));
  return axis == static_cast<int64_t>(rank - from_end);
}

/// The name under which the operand is bound as each sample's own; none if it stays.
Result<std::optional<std::string>> own_operand(NodeContext& context, size_t i, size_t from_end) {
  Lowering& lowering = context.lowering();
  const std::string& name = context.node().inputs[i];
  const Binding* found = name.empty() ? nullptr : lowering.find(name);
  if (found == nullptr || !may_repeat(*found, from_end, lowering.traced_batch())) return std::optional<std::string>();
  const Binding operand = *found;
  GP_TRY(const bool joins, joins_along(context, operand.type.shape.size(), from_end));
  if (joins) return std::optional<std::string>();
  const bool expands = context.node().op == "Expand";  // which knows equal parts itself
  std::optional<Binding> one = expands ? std::nullopt : of_one_sample(lowering, operand, from_end);
  if (!one && !expands) {
    GP_TRY(one, first_row(context, operand, from_end));
  }
  const bool numbers = !one && numbers_samples(operand, lowering.traced_batch());
  if (!one && !numbers) return std::optional<std::string>();
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its operand ", quoted(ModelText(name)),
                    numbers ? " numbers the " : " holds the same elements for each of the ", lowering.traced_batch(),
                    " samples of the export; it follows the batch now"),
               kExportRecipe);
  if (numbers) {
    GP_TRY(std::string own, bind_numbers(context, name, operand, from_end));
    return std::optional(std::move(own));
  }
  GP_TRY(std::string own, bind_own(context, name, std::move(*one), from_end));
  return std::optional(std::move(own));
}

/// Of tuples of indices, [n, .., width], whose first index is the sample's number and whose others are the same for
/// each: these others, [1, .., width - 1]; nothing of other tuples.
std::optional<Binding> tuples_of_one_sample(const Binding& tuples, int64_t samples) {
  if (!tuples.known || tuples.known->uniform || tuples.known->shape.size() < 2) return std::nullopt;
  const Known& known = *tuples.known;
  if (known.shape.front() != Dim::fixed(samples) || known.shape.back().factor < 2) return std::nullopt;
  const auto width = static_cast<size_t>(known.shape.back().factor);
  const size_t part = known.elements.size() / static_cast<size_t>(samples);
  std::vector<Number> others;
  for (size_t i = 0; i < known.elements.size(); ++i) {
    const bool is_first = i % width == 0;
    const Number expected = is_first ? Number::of_whole(static_cast<int64_t>(i / part)) : known.elements[i % part];
    if (!(known.elements[i] == expected)) return std::nullopt;
    if (!is_first && i < part) others.push_back(expected);
  }
  Binding one;
  one.type = tuples.type;
  one.type.shape.front() = Dim::fixed(1);
  one.type.shape.back() = Dim::fixed(static_cast<int64_t>(width) - 1);
  one.known = Known{.dtype = known.dtype, .shape = one.type.shape, .uniform = false, .elements = std::move(others)};
  return one;
}

/// A look-up by such tuples, as one of each sample in its own rows.
Result<std::optional<OnnxNode>> with_own_tuples(Lowering& lowering, const OnnxNode& node) {
  std::optional<OnnxNode> changed;
  const Attribute* shared = node.find("batch_dims");
  if (node.inputs.size() != 2 || (shared != nullptr && shared->i != 0)) return changed;
  const Binding *data = lowering.find(node.inputs[0]), *tuples = lowering.find(node.inputs[1]);
  if (data == nullptr || tuples == nullptr || data->type.shape.empty() || data->type.shape[0] != Dim::batch())
    return changed;
  std::optional<Binding> one = tuples_of_one_sample(*tuples, lowering.traced_batch());
  if (!one) return changed;
  NodeContext context(lowering, node);
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its operand ", quoted(ModelText(node.inputs[1])), " numbers the ", lowering.traced_batch(),
                    " samples of the export; it follows the batch now"),
               kExportRecipe);
  const size_t rank = one->type.shape.size();
  changed = node;
  GP_TRY(changed->inputs[1], bind_own(context, node.inputs[1], std::move(*one), rank));
  std::erase_if(changed->attributes, [](const Attribute& each) { return each.name == "batch_dims"; });
  Attribute& own = changed->attributes.emplace_back();
  own.name = "batch_dims", own.kind = Attribute::Kind::kInt, own.i = 1;
  return changed;
}

/// A file of one sample joins tokens with that one alone: what all samples share is repeated for each.
Result<std::optional<OnnxNode>> joined_with_all(Lowering& lowering, const OnnxNode& node) {
  std::optional<OnnxNode> changed;
  const std::optional<size_t> from_end = batch_from_end(lowering, node);
  if (!from_end) return changed;
  NodeContext context(lowering, node);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Binding* found = node.inputs[i].empty() ? nullptr : lowering.find(node.inputs[i]);
    if (found == nullptr || !may_repeat(*found, *from_end, 1)) continue;
    GP_TRY(const bool joins, joins_along(context, found->type.shape.size(), *from_end));
    if (joins) continue;
    context.note(Severity::kNote, Code::kBatchNotFound,
                 text("its operand ", quoted(ModelText(node.inputs[i])),
                      " is joined with the one sample of the export; it is joined with each of the batch now"),
                 kExportRecipe);
    GP_TRY(std::string own, bind_own(context, node.inputs[i], *found, *from_end));
    if (!changed) changed = node;
    changed->inputs[i] = std::move(own);
  }
  return changed;
}

/// Where an operand has c rows for each sample, one behind the other, [c * B, ..]: the other, [n * c, ..], whose n
/// parts are equal, as those of each sample. Broadcasting alone would not repeat c rows.
Result<std::optional<std::string>> own_rows(NodeContext& context, size_t i, size_t from_end, int64_t rows) {
  Lowering& lowering = context.lowering();
  const std::string& name = context.node().inputs[i];
  const Binding* operand = name.empty() ? nullptr : lowering.find(name);
  const int64_t samples = lowering.traced_batch();
  int64_t all = 0;
  if (operand == nullptr || __builtin_mul_overflow(samples, rows, &all) || !may_repeat(*operand, from_end, all))
    return std::optional<std::string>();
  const size_t axis = operand->type.shape.size() - from_end;
  std::optional<Binding> one = of_one_sample(lowering, *operand, from_end);
  if (!one) return std::optional<std::string>();
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its operand ", quoted(ModelText(name)), " holds the same elements for each of the ", samples,
                    " samples of the export; it follows the batch now"),
               kExportRecipe);
  one->type.shape[axis] = Dim::fixed(rows);
  if (one->known) one->known->shape = one->type.shape;
  const ir::Shape& part = one->type.shape;  // of a sample
  ir::Shape apart(part.begin() + static_cast<ptrdiff_t>(axis), part.end()), joined = part;
  apart.insert(apart.begin(), Dim::batch());
  joined[axis] = Dim::batch(rows);
  const ir::Shape whole(apart.begin() + 1, apart.end());
  GP_TRY(ir::ValueId value, lowering.value_of(*one, context.node()));
  if (axis > 0) {
    GP_TRY(value, context.emit_one("Reshape", {value}, {{"shape", whole}}));
  }
  GP_TRY(value, context.emit_one("Expand", {value}, {{"shape", apart}}));
  GP_TRY(value, context.emit_one("Reshape", {value}, {{"shape", joined}}));
  std::string own = lowering.unused_name(name + " of all samples");
  lowering.bind_value(own, value);
  return std::optional(std::move(own));
}

/// The rows that each sample has in the operand of the batch, [c * B, ..], where there are several of each and they lie
/// together; 0 of others.
int64_t rows_of_samples(Lowering& lowering, const OnnxNode& node) {
  for (const std::string& name : node.inputs) {
    const Binding* operand = name.empty() ? nullptr : lowering.find(name);
    if (operand == nullptr || !operand->value.valid()) continue;
    const ir::Shape& shape = operand->type.shape;
    const auto batch = std::ranges::find_if(shape, [](Dim dim) { return dim.power == 1 && dim.factor > 1; });
    if (batch == shape.end()) continue;
    const bool lie_together = lowering.rows_per_step(operand->value) == batch->factor;
    return lie_together ? batch->factor : 0;
  }
  return 0;
}

/// Whether all bytes that the file holds of a tensor are zero.
bool holds_zeros(const ir::DataSource& data) {
  if (const auto* held = std::get_if<ir::InlineData>(&data))
    return held->bytes.find_first_not_of('\0') == std::string::npos;
  const auto* filled = std::get_if<ir::FilledData>(&data);
  return filled != nullptr && filled->value == 0;
}

/// The first state of a recurrent layer, [layers, n, width] of the n samples of the export, in which all rows are
/// equal: the name of one of as many samples as there are, or none where it is zero. Nothing of others.
Result<std::optional<std::string>> own_state(NodeContext& context, size_t input) {
  Lowering& lowering = context.lowering();
  const int64_t samples = lowering.traced_batch();
  const std::string& name = context.node().inputs[input];
  const Binding* found = name.empty() ? nullptr : lowering.find(name);
  if (found == nullptr || !found->data || found->type.shape.size() != 3 || may_be_weight(lowering, *found))
    return std::optional<std::string>();
  Binding row = *found;
  ir::Shape all = row.type.shape;
  const size_t axis = context.int_attribute("layout", 0) == 1 ? 0 : 1;
  if (all[axis] != Dim::fixed(samples) || !all[1 - axis].is_fixed()) return std::optional<std::string>();
  int64_t rows = 0;
  if (__builtin_mul_overflow(samples, all[1 - axis].factor, &rows) || rows < 1) return std::optional<std::string>();
  if (!lowering.tensors().repeats(*row.data, rows)) return std::optional<std::string>();
  context.note(Severity::kNote, Code::kBatchNotFound,
               text("its first state ", quoted(ModelText(name)), " is the same for each of the ", samples,
                    " samples of the export; it follows the batch now"),
               kExportRecipe);
  if (holds_zeros(*row.data)) return std::optional(std::string());
  all[axis] = Dim::batch();
  row.type.shape[0] = row.type.shape[1] = Dim::fixed(1);
  row.data = first_part(std::move(*row.data), rows);
  row.known.reset();
  row.value = {};
  GP_TRY(const ir::ValueId constant, lowering.value_of(row, context.node()));
  GP_TRY(const ir::ValueId repeated, context.emit_one("Expand", {constant}, {{"shape", std::move(all)}}));
  std::string own = lowering.unused_name(name + " of all samples");
  lowering.bind_value(own, repeated);
  return std::optional(std::move(own));
}

bool has_states(const OnnxNode& node) { return node.op == "LSTM" || node.op == "GRU" || node.op == "RNN"; }

/// A recurrent layer with such states as those of each sample.
Result<std::optional<OnnxNode>> with_own_states(Lowering& lowering, const OnnxNode& node) {
  std::optional<OnnxNode> changed;
  NodeContext context(lowering, node);
  for (const size_t input : {5, 6}) {
    if (input >= node.inputs.size()) continue;
    GP_TRY(std::optional<std::string> own, own_state(context, input));
    if (!own) continue;
    if (!changed) changed = node;
    changed->inputs[input] = std::move(*own);
  }
  return changed;
}

}  // namespace

Result<std::optional<OnnxNode>> with_own_constants(Lowering& lowering, const OnnxNode& node) {
  std::optional<OnnxNode> changed;
  if (lowering.traced_batch() == 1 && node.op == "Concat") return joined_with_all(lowering, node);
  if (lowering.traced_batch() > 1 && node.op == "GatherND") return with_own_tuples(lowering, node);
  if (lowering.traced_batch() > 1 && has_states(node)) return with_own_states(lowering, node);
  if (lowering.traced_batch() <= 1 || !takes_rows_alike(node)) return changed;
  const int64_t rows = broadcasts(node) ? rows_of_samples(lowering, node) : 0;
  const std::optional<size_t> from_end = batch_from_end(lowering, node, Dim::batch(std::max<int64_t>(1, rows)));
  if (!from_end) return changed;
  NodeContext context(lowering, node);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    GP_TRY(std::optional<std::string> own,
           rows > 0 ? own_rows(context, i, *from_end, rows) : own_operand(context, i, *from_end));
    if (!own) continue;
    if (!changed) changed = node;
    changed->inputs[i] = std::move(*own);
  }
  return changed;
}

}  // namespace graphpipe::frontend
