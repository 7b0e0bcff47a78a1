// Ops that pick elements: slices, look-ups, sorting.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "frontend/exported_call.h"
#include "frontend/first_rows.h"
#include "frontend/lower_selection.h"
#include "frontend/written_part.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;

struct Cut {
  int64_t start = 0, end = 0, step = 1;
};

/// A bound of a slice of an axis of `size` elements, counted from 0.
int64_t clamped(int64_t at, int64_t size, int64_t step) {
  if (at < 0) at = at < -size ? -1 : at + size;
  return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
}

int64_t elements_of(const Cut& cut) {
  const int64_t span = cut.step > 0 ? cut.end - cut.start : cut.start - cut.end;
  const int64_t step = std::abs(std::max(cut.step, -INT64_MAX));
  return span <= 0 ? 0 : (span - 1) / step + 1;
}

/// Whether [start, end) is the whole of an axis that contains the batch, whatever its size.
bool takes_all(const Number& start, const Number& end, int64_t step, Dim dim) {
  const bool open = end.is_fixed() && end.whole >= INT32_MAX;
  return step == 1 && start == Number::of_whole(0) && (open || end == Number::of_dim(dim));
}

Result<Cut> cut_of(NodeContext& context, const Number& start, const Number& end, int64_t step, Dim dim) {
  if (step == 0) return context.problem(Code::kBadModel, "has a step of 0", "export the model again");
  if (!start.is_fixed() || !dim.is_fixed())
    return context.problem(Code::kMixesSamples, "cuts a part out of an axis that holds the batch",
                           "slice another axis, or export with a named batch axis");
  // An end that grows with the batch lies beyond every fixed axis only if the axis is small; do not guess.
  if (!end.is_fixed())
    return context.problem(Code::kUnresolvedShape, "its end depends on the batch size", "slice to a fixed end");
  return Cut{clamped(start.whole, dim.factor, step), clamped(end.whole, dim.factor, step), step};
}

/// All offsets but the first: where the bags end.
Status slice_offsets(NodeContext& context) {
  GP_TRY(const std::vector<int64_t> starts, context.integers(1, "starts"));
  GP_TRY(const std::vector<int64_t> ends, context.integers(2, "ends"));
  BagOffsets offsets = *context.input(0).offsets;
  if (starts != std::vector<int64_t>{1} || ends.size() != 1 || ends[0] < INT32_MAX || offsets.first != 0)
    return context.problem(Code::kUnsupportedOp, "reads the offsets of bags in another way than nn.EmbeddingBag",
                           "use nn.EmbeddingBag without offsets");
  offsets.first = 1;
  Binding binding;
  binding.type = {context.type(0).dtype, {offsets.bags}};
  binding.offsets = offsets;
  context.lowering().bind(context.node().outputs[0], std::move(binding));
  return Ok{};
}

/// Exporters slice off the first row of a tensor just to get its shape, even if the rows are samples. Returns whether
/// nothing reads an element of the node's output, and the slice exists with one sample too.
bool only_shapes_rows(NodeContext& context, const Number& start, const Number& end, int64_t step, Dim dim) {
  return !dim.is_fixed() && start.is_fixed() && end.is_fixed() && step == 1 && 0 <= start.whole &&
         start.whole < end.whole && end.whole <= dim.factor &&
         !context.lowering().is_read_as_data(context.node().outputs[0]);
}

/// The axes and steps of a Slice with bounds on `count` of them.
struct AxesAndSteps {
  std::vector<int64_t> axes, steps;
};
Result<AxesAndSteps> axes_and_steps(NodeContext& context, size_t count) {
  AxesAndSteps cuts{.axes = std::vector<int64_t>(count), .steps = std::vector<int64_t>(count, 1)};
  std::iota(cuts.axes.begin(), cuts.axes.end(), 0);
  if (context.has_input(3)) {
    GP_TRY(cuts.axes, context.integers(3, "axes"));
  }
  if (context.has_input(4)) {
    GP_TRY(cuts.steps, context.integers(4, "steps"));
  }
  if (cuts.axes.size() != count || cuts.steps.size() != count)
    return context.problem(Code::kBadModel, "its operands have different lengths", "export the model again");
  return cuts;
}

Status cut_axes(NodeContext& context) {
  const Known *starts = context.known(1), *ends = context.known(2);
  const std::optional<size_t> count = starts == nullptr ? std::nullopt : known_count(starts->shape);
  if (!count || ends == nullptr || known_count(ends->shape) != count)
    return context.problem(Code::kUnresolvedShape, "its bounds depend on data", "make them constants");
  GP_TRY(const AxesAndSteps given, axes_and_steps(context, *count));
  const auto& [axes, steps] = given;
  std::vector<int64_t> cut_starts, cut_ends, cut_axes, cut_steps;
  ir::TensorType cut_type = context.type(0);
  bool only_type = false;
  for (size_t i = 0; i < *count; ++i) {
    GP_TRY(const int64_t axis, context.axis(axes[i], context.rank(0)));
    const Dim dim = context.type(0).shape[static_cast<size_t>(axis)];
    if (takes_all(starts->element(i), ends->element(i), steps[i], dim)) continue;
    if (only_shapes_rows(context, starts->element(i), ends->element(i), steps[i], dim)) {
      cut_type.shape[static_cast<size_t>(axis)] = Dim::fixed(ends->element(i).whole - starts->element(i).whole);
      only_type = true;
      continue;
    }
    GP_TRY(const Cut cut, cut_of(context, starts->element(i), ends->element(i), steps[i], dim));
    if (cut.start == 0 && cut.end == dim.factor && cut.step == 1) continue;
    cut_starts.push_back(cut.start);
    // An end before the first element, which -1 would not express.
    cut_ends.push_back(cut.end < 0 ? -dim.factor - 1 : cut.end);
    cut_axes.push_back(axis);
    cut_steps.push_back(cut.step);
    cut_type.shape[static_cast<size_t>(axis)] = Dim::fixed(elements_of(cut));
  }
  if (only_type) {
    Binding binding;
    binding.type = std::move(cut_type);
    context.lowering().bind(context.node().outputs[0], std::move(binding));
    return Ok{};
  }
  if (cut_axes.empty()) {
    context.bind_alias();
    return Ok{};
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Slice", {input},
                              {{"starts", std::move(cut_starts)},
                               {"ends", std::move(cut_ends)},
                               {"axes", std::move(cut_axes)},
                               {"steps", std::move(cut_steps)}});
}

Status lower_slice(NodeContext& context) {
  if (context.input(0).offsets) return slice_offsets(context);
  if (is_between_data(context)) return slice_between_data(context);
  if (context.input(0).first_rows_of.valid()) return read_first_rows(context, lower_slice);
  return takes_first_rows(context) ? take_first_rows(context) : cut_axes(context);
}

/// For nn.Embedding(padding_idx=...): the row that its look-ups do not train; -1 if there is none.
Result<int64_t> padding_row(NodeContext& context, const ExportedCall& embedding) {
  int64_t row = -1;
  if (embedding.argument(3) == "True") {
    const char* const what =
        "the module divides the gradients of this table by how often a row is looked up (scale_grad_by_freq), which "
        "the "
        "file leaves out: it trains without";
    const char* const cure = "use nn.Embedding without scale_grad_by_freq; --accept trains it so";
    if (refuses_losses(context.lowering().request().spec)) return context.problem(Code::kLostByExport, what, cure);
    context.note(Severity::kWarning, Code::kLostByExport, what, cure);
  }
  if (!read_number(embedding.argument(2), row) || row < 0) return -1;
  context.note(Severity::kNote, Code::kLostByExport,
               text("row ", row,
                    " of the table is the padding of nn.Embedding, which the operators of the file leave "
                    "out: these look-ups do not train it, as in PyTorch"),
               "none needed");
  return row;
}

Status lower_gather(NodeContext& context) {
  if (context.input(0).first_rows_of.valid()) return read_first_rows(context, lower_gather);
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", 0), context.rank(0)));
  if (context.lowering().traced_batch() > 0 && context.known(1) != nullptr &&
      !context.type(0).shape[static_cast<size_t>(axis)].is_fixed())
    return context.problem(Code::kUnresolvedShape, "picks samples of the batch by constant numbers",
                           "export with a named batch axis");
  GP_TRY(std::vector<ir::ValueId> inputs, context.all_values());
  ir::Attributes attributes{{"axis", axis}};
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (axis == 0 && call && call->target == "aten.embedding.default") {
    // PyTorch refuses negative ids here, where those of Gather count from the end.
    attributes.set("from_first_row", 1);
    GP_TRY(const int64_t row, padding_row(context, *call));
    if (row >= 0) attributes.set("padding_row", row);
  }
  return context.emit_outputs("Gather", std::move(inputs), std::move(attributes));
}

/// The call whose reduction, which ONNX cannot express, the exporter has written as none.
std::optional<ExportedCall> exported_mean(NodeContext& context) {
  std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  const bool is_mean = call && call->target == "aten.scatter_reduce.two" && call->argument(4) == "mean" &&
                       context.string_attribute("reduction", "none") == "none";
  return is_mean ? std::move(call) : std::nullopt;
}

/// The sums divided by how many terms were added. The original element is one of them unless the call says no: then sum
/// and count begin at zero where something is added.
Status lower_scatter_elements(NodeContext& context) {
  const std::optional<ExportedCall> mean = exported_mean(context);
  if (!mean) return lower_plain(context);
  const ir::TensorType data = context.type(0), updates = context.type(2);
  if (!ir::is_floating(data.dtype))
    return context.problem(Code::kUnsupportedOp,
                           "is scatter_reduce(\"mean\") of integers, which the file writes as none",
                           "cast to a floating type before it");
  context.note(
      Severity::kNote, Code::kLostByExport,
      "the file writes scatter_reduce(\"mean\") as one without a reduction; the mean is computed, as in PyTorch",
      "none needed; other readers of the file compute something else");
  GP_TRY(std::vector<ir::ValueId> inputs, context.all_values());
  const ir::Attributes replacing{{"axis", context.int_attribute("axis", 0)}};
  ir::Attributes adding = replacing;
  adding.set("reduction", std::string("add"));
  GP_TRY(ir::ValueId own, context.filled(1, data));
  GP_TRY(const ir::ValueId added, context.filled(1, updates));
  if (std::ranges::find(mean->keywords, "include_self: False") != mean->keywords.end()) {
    GP_TRY(const ir::ValueId nothing, context.filled(0, updates));
    GP_TRY(inputs[0], context.emit_one("ScatterElements", {inputs[0], inputs[1], nothing}, replacing));
    GP_TRY(own, context.emit_one("ScatterElements", {own, inputs[1], nothing}, replacing));
  }
  GP_TRY(const ir::ValueId sums, context.emit_one("ScatterElements", inputs, adding));
  GP_TRY(const ir::ValueId counts, context.emit_one("ScatterElements", {own, inputs[1], added}, adding));
  return context.emit_outputs("Div", {sums, counts}, {});
}

/// The row number that each index tuple names, [tuples, width] of them: looked up in a table of row numbers, so that
/// negative indices and bounds checks work as everywhere.
Result<ir::ValueId> row_numbers(NodeContext& context, ir::Shape indexed, Dim rows, Dim tuples, Dim width) {
  GP_TRY(
      const auto numbers,
      context.emit("Iota", {}, {{"shape", ir::Shape{rows}}, {"to", std::string(ir::dtype_name(ir::DType::kInt64))}}));
  GP_TRY(const auto table, context.emit("Reshape", {numbers[0]}, {{"shape", std::move(indexed)}}));
  GP_TRY(const ir::ValueId indices, context.value(1));
  GP_TRY(const auto found, context.emit("GatherND", {table[0], indices}, {}));
  GP_TRY(const auto column, context.emit("Reshape", {found[0]}, {{"shape", ir::Shape{tuples, Dim::fixed(1)}}}));
  GP_TRY(const auto spread, context.emit("Expand", {column[0]}, {{"shape", ir::Shape{tuples, width}}}));
  return spread[0];
}

/// The data with the updates in place of a part, axis by axis: what lies before them, they themselves, what lies
/// behind.
Result<ir::ValueId> replace_part(NodeContext& context, ir::ValueId data, ir::ValueId updates,
                                 std::span<const WrittenRows> part) {
  if (part.empty()) return updates;
  const auto [axis, first, count] = part.front();
  const int64_t rows = context.lowering().graph().value(data).type.shape[static_cast<size_t>(axis)].factor;
  std::vector<ir::ValueId> parts;
  if (first > 0) {
    GP_TRY(const ir::ValueId before, context.emit_slice(data, axis, 0, first));
    parts.push_back(before);
  }
  ir::ValueId changed = data;
  if (part.size() > 1) {
    GP_TRY(changed, context.emit_slice(data, axis, first, first + count));
  }
  GP_TRY(changed, replace_part(context, changed, updates, part.subspan(1)));
  parts.push_back(changed);
  if (first + count < rows) {
    GP_TRY(const ir::ValueId behind, context.emit_slice(data, axis, first + count, rows));
    parts.push_back(behind);
  }
  return context.emit_one("Concat", std::move(parts), {{"axis", axis}});
}

/// Slices and a Concat, so that samples stay apart: as a ScatterND it would read the number of each sample.
Result<bool> replaces_part(NodeContext& context) {
  GP_TRY(const ir::ValueId places, context.value(1));
  const ir::Shape data_shape = context.type(0).shape;
  const auto part = written_part(context.lowering().graph(), places, data_shape);
  if (!part) return false;
  ir::Shape box = data_shape;
  for (const WrittenRows& rows : *part) box[static_cast<size_t>(rows.axis)] = Dim::fixed(rows.count);
  if (context.type(2).shape != box) return false;
  GP_TRY(const ir::ValueId updates, context.value(2));
  if (part->empty()) {
    context.bind(0, updates);
    return true;
  }
  GP_TRY(const ir::ValueId data, context.value(0));
  GP_TRY(const ir::ValueId replaced, replace_part(context, data, updates, *part));
  context.bind(0, replaced);
  return true;
}

/// ScatterND that replaces a part as a whole is made of slices; with multiplication or extrema it becomes
/// ScatterElements on rows.
Status lower_scatter_nd(NodeContext& context) {
  const std::string reduction = context.string_attribute("reduction", "none");
  if (reduction == "none") {
    GP_TRY(const bool is_done, replaces_part(context));
    if (is_done) return Ok{};
  }
  if (reduction != "mul" && reduction != "max" && reduction != "min") return lower_plain(context);
  const ir::Shape data_shape = context.type(0).shape, index_shape = context.type(1).shape;
  const int64_t indexed_axes = index_shape.empty() || !index_shape.back().is_fixed() ? 0 : index_shape.back().factor;
  if (indexed_axes < 1 || indexed_axes > static_cast<int64_t>(data_shape.size()))
    return context.problem(Code::kBadModel, "its tuples do not index its data", "export the model again");
  const auto boundary = data_shape.begin() + indexed_axes;
  const ir::Shape indexed(data_shape.begin(), boundary);
  const std::optional<Dim> rows = ir::element_count(indexed);
  const std::optional<Dim> width = ir::element_count(ir::Shape(boundary, data_shape.end()));
  const std::optional<Dim> tuples = ir::element_count(ir::Shape(index_shape.begin(), index_shape.end() - 1));
  if (!rows || !rows->is_fixed() || !width || !tuples)
    return context.problem(Code::kMixesSamples, "updates the samples of a batch together",
                           "index axes other than the batch");
  GP_TRY(const ir::ValueId data, context.value(0));
  GP_TRY(const ir::ValueId updates, context.value(2));
  GP_TRY(const ir::ValueId numbers, row_numbers(context, indexed, *rows, *tuples, *width));
  GP_TRY(const auto table, context.emit("Reshape", {data}, {{"shape", ir::Shape{*rows, *width}}}));
  GP_TRY(const auto changes, context.emit("Reshape", {updates}, {{"shape", ir::Shape{*tuples, *width}}}));
  GP_TRY(auto changed, context.emit("ScatterElements", {table[0], numbers, changes[0]},
                                    {{"axis", int64_t{0}}, {"reduction", reduction}}));
  return context.emit_outputs("Reshape", std::move(changed), {{"shape", data_shape}});
}

Status lower_top_k(NodeContext& context) {
  const Known* count = context.known(1);
  if (count != nullptr && count->elements.size() == 1 && !count->elements[0].is_fixed())
    return context.problem(Code::kMixesSamples, "sorts what several samples have together",
                           "sort within each sample; a mixture of experts can compute every expert and weigh them");
  GP_TRY(const std::vector<int64_t> k, context.integers(1, "number of elements"));
  if (k.size() != 1) return context.problem(Code::kBadModel, "its number of elements is no scalar", "export again");
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", -1), context.rank(0)));
  GP_TRY(const ir::ValueId input, context.value(0));
  GP_TRY(const std::vector<ir::ValueId> results, context.emit("TopK", {input},
                                                              {{"k", k[0]},
                                                               {"axis", axis},
                                                               {"largest", context.int_attribute("largest", 1)},
                                                               {"sorted", context.int_attribute("sorted", 1)}},
                                                              2));
  context.bind(0, results[0]);
  context.bind(1, results[1]);
  return Ok{};
}

Status lower_one_hot(NodeContext& context) {
  GP_TRY(const std::vector<double> depth, context.reals(1, "depth"));
  GP_TRY(const std::vector<double> values, context.reals(2, "values"));
  if (depth.size() != 1 || values.size() != 2 || !(depth[0] >= 1 && depth[0] <= 1e9))
    return context.problem(Code::kBadModel, "its depth or values have the wrong size", "export the model again");
  if (!(std::abs(values[0]) <= 1e15 && std::abs(values[1]) <= 1e15))
    return context.problem(Code::kLimitExceeded, "its values lie beyond 1e15", "use smaller ones");
  GP_TRY(const int64_t axis, context.axis(context.int_attribute("axis", -1), context.rank(0) + 1));
  GP_TRY(ir::ValueId input, context.value(0));
  // The indices may have any type; fractions are truncated.
  if (const ir::DType type = context.type(0).dtype; type != ir::DType::kInt64 && type != ir::DType::kInt32) {
    GP_TRY(const auto whole, context.emit("Cast", {input}, {{"to", std::string("i64")}}));
    input = whole.front();
  }
  return context.emit_outputs("OneHot", {input},
                              {{"axis", axis},
                               {"depth", static_cast<int64_t>(depth[0])},
                               {"off", values[0]},
                               {"on", values[1]},
                               {"to", std::string(ir::dtype_name(context.type(2).dtype))}});
}

/// CumSum and CumProd.
Status lower_cumulative(NodeContext& context) {
  GP_TRY(const std::vector<int64_t> given, context.integers(1, "axis"));
  if (given.size() != 1) return context.problem(Code::kBadModel, "its axis is no scalar", "export the model again");
  GP_TRY(const int64_t axis, context.axis(given[0], context.rank(0)));
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs(context.node().op, {input},
                              {{"axis", axis},
                               {"exclusive", context.int_attribute("exclusive", 0)},
                               {"reverse", context.int_attribute("reverse", 0)}});
}

Status lower_trilu(NodeContext& context) {
  int64_t diagonal = 0;
  if (context.has_input(1)) {
    GP_TRY(const std::vector<int64_t> given, context.integers(1, "diagonal"));
    if (given.size() != 1) return context.problem(Code::kBadModel, "its diagonal is no scalar", "export again");
    diagonal = given[0];
  }
  GP_TRY(const ir::ValueId input, context.value(0));
  return context.emit_outputs("Trilu", {input}, {{"k", diagonal}, {"upper", context.int_attribute("upper", 1)}});
}

}  // namespace

std::vector<HandlerEntry> index_handlers() {
  return {{"Slice", lower_slice},       {"ScatterND", lower_scatter_nd}, {"ScatterElements", lower_scatter_elements},
          {"Gather", lower_gather},     {"TopK", lower_top_k},           {"OneHot", lower_one_hot},
          {"CumSum", lower_cumulative}, {"CumProd", lower_cumulative},   {"Trilu", lower_trilu}};
}

}  // namespace graphpipe::frontend
