// Reductions over axes. A reduction over the batch axis gives a value without the batch: kMixed.
//
// Each line of the table is a forward op and its gradient op <Name>Grad(gradient, saved...). Patterns: $0, $1, ... are
// the inputs; <axes> and <keep> the forward's arguments; <g> and <y> are the gradient and the forward's output in the
// shape that keepdims=1 gives, so that they broadcast against the input; <in> is the input's shape, <count> the number
// of elements behind one output element.

#include <algorithm>
#include <numeric>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

/// What the gradient op reads in addition to the gradient, in this order.
enum class Reads : uint8_t { kNothing, kInput, kOutput, kBoth };
using Fill = ExampleInput::Fill;

struct ReduceRow {
  std::string_view name;
  std::string_view pattern;
  std::string_view header;
  std::string_view gradient_name;
  Reads reads;
  std::string_view gradient_pattern;
  std::string_view gradient_header;
  Fill fill = Fill::kNormal;
  bool takes_integers = true;
};

constexpr ReduceRow kTable[] = {
    {"ReduceSum", "at::sum($0, <axes>, <keep>)", kSumHeader, "ReduceSumGrad", Reads::kNothing, "<g>.expand(<in>)",
     "ATen/core/Tensor.h"},
    {"ReduceMean", "at::mean($0, <axes>, <keep>)", "ATen/ops/mean.h", "ReduceMeanGrad", Reads::kNothing,
     "at::div(<g>, <count>).expand(<in>)", "ATen/ops/div.h", Fill::kNormal, false},
    // Elements that tie for the extremum share its gradient equally.
    {"ReduceMax", "at::amax($0, <axes>, <keep>)", "ATen/ops/amax.h", "ReduceMaxGrad", Reads::kBoth,
     "at::mul(<g>, $1.eq(<y>)).div_($1.eq(<y>).sum(<axes>, true))", kMulHeader, Fill::kPermutation},
    {"ReduceMin", "at::amin($0, <axes>, <keep>)", "ATen/ops/amin.h", "ReduceMinGrad", Reads::kBoth,
     "at::mul(<g>, $1.eq(<y>)).div_($1.eq(<y>).sum(<axes>, true))", kMulHeader, Fill::kPermutation},
    {"ReduceL1", "at::sum($0.abs(), <axes>, <keep>)", kSumHeader, "ReduceL1Grad", Reads::kInput, "$1.sign().mul_(<g>)",
     kTensorHeader, Fill::kPermutation},
    // The norm of a zero vector has gradient 0, the middle of its subgradients.
    {"ReduceL2", "at::linalg_vector_norm($0, 2, <axes>, <keep>)", "ATen/ops/linalg_vector_norm.h", "ReduceL2Grad",
     Reads::kBoth, "at::mul($1, <g>.div(<y>)).masked_fill_(<y>.eq(0), 0)", kMulHeader, Fill::kNormal, false},
    {"ReduceSumSquare", "at::sum($0.square(), <axes>, <keep>)", kSumHeader, "ReduceSumSquareGrad", Reads::kInput,
     "$1.mul(2).mul_(<g>)", kTensorHeader},
    {"ReduceLogSum", "at::sum($0, <axes>, <keep>).log()", kSumHeader, "ReduceLogSumGrad", Reads::kOutput,
     "at::div(<g>, <y>.exp()).expand(<in>)", "ATen/ops/div.h", Fill::kPositive, false},
    {"ReduceLogSumExp", "at::logsumexp($0, <axes>, <keep>)", "ATen/ops/logsumexp.h", "ReduceLogSumExpGrad",
     Reads::kBoth, "$1.sub(<y>).exp_().mul_(<g>)", kTensorHeader, Fill::kNormal, false},
};

const ReduceRow& reduce_row_of(const ir::Node& node) {
  const auto* row = std::ranges::find_if(
      kTable, [&](const ReduceRow& each) { return each.name == node.op || each.gradient_name == node.op; });
  GP_CHECK(row != std::end(kTable));
  return *row;
}

/// The reduced axes, ascending. If no axes are given all are reduced, unless the node says that none are.
Result<std::vector<int>> reduced_axes(const NodeView& node, size_t rank) {
  const std::vector<int64_t> given = node.attributes().get_ints("axes");
  if (!given.empty() || node.attributes().get_int("noop_with_empty_axes", 0) != 0) {
    return normalized_axes(node, given, rank);
  }
  std::vector<int> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool keeps_dims(const NodeView& node) { return node.attributes().get_int("keepdims", 1) != 0; }

ir::Shape reduced(ir::Shape shape, const std::vector<int>& axes, bool keep) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (keep) {
      shape[static_cast<size_t>(*axis)] = ir::Dim::fixed(1);
    } else {
      shape.erase(shape.begin() + *axis);
    }
  }
  return shape;
}

Inferred infer_reduction(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& from = node.input(0).type;
  if (from.dtype == ir::DType::kBool) return bad_model(node, "is not defined on booleans");
  GP_TRY(const std::vector<int> axes, reduced_axes(node, from.shape.size()));
  return one_output(node, {from.dtype, reduced(from.shape, axes, keeps_dims(node))});
}

Inferred infer_reduce(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  if (!reduce_row_of(node.node()).takes_integers) GP_TRY_VOID(expect_floating(node, {0}));
  return infer_reduction(node);
}

size_t gradient_inputs(const ir::Node& node) {
  if (node.op == "ReduceProdGrad") return 2;
  const Reads reads = reduce_row_of(node).reads;
  return reads == Reads::kNothing ? 1 : reads == Reads::kBoth ? 3 : 2;
}

/// {axes, keepdims, shape: of the reduced input}
Inferred infer_reduce_gradient(const NodeView& node) {
  const size_t inputs = gradient_inputs(node.node());
  GP_TRY_VOID(expect_inputs(node, inputs, inputs));
  GP_TRY_VOID(expect_floating(node, {0}));
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const std::vector<int> axes, reduced_axes(node, shape.size()));
  if (reduced(shape, axes, keeps_dims(node)) != node.input(0).type.shape) {
    return bad_model(node, "does not fit its reduction");
  }
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

Status reduce_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& forward = builder.forward();
  const ReduceRow& row = reduce_row_of(forward.node());
  ir::Attributes attributes = forward.attributes();
  attributes.set("shape", forward.input(0).type.shape);
  std::vector<ir::ValueId> inputs = {builder.output_gradient(0)};
  if (row.reads == Reads::kInput || row.reads == Reads::kBoth) inputs.push_back(builder.input(0));
  if (row.reads == Reads::kOutput || row.reads == Reads::kBoth) inputs.push_back(builder.output(0));
  builder.set_input_gradient(0, builder.add_one(0, row.gradient_name, inputs, attributes));
  return Ok{};
}

// --- emission ---

void replace_all(std::string& where, std::string_view from, const std::string& to) {
  for (size_t at = where.find(from); at != std::string::npos; at = where.find(from, at + to.size())) {
    where.replace(at, from.size(), to);
  }
}

/// Such as the gradient of a bias.
bool is_sum_of_rows(const NodeView& node, const std::vector<int>& axes) {
  const ir::TensorType& from = node.input(0).type;
  return node.node().op == "ReduceSum" && !keeps_dims(node) && ir::is_floating(from.dtype) && !axes.empty() &&
         axes.size() < from.shape.size() && axes.back() + 1 == std::ssize(axes);
}

void emit_reduce(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ReduceRow& row = reduce_row_of(node.node());
  const std::vector<int> axes = reduced_axes(node, node.input(0).type.shape.size()).value();
  // ATen interprets an empty list of axes as all axes.
  if (axes.empty() && !node.input(0).type.shape.empty()) {
    return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  }
  if (is_sum_of_rows(node, axes))
    return assign_pattern(emitter, text("graphpipe::runtime::sum_leading_axes($0, ", axes.size(), ")"),
                          "runtime/kernels/sum_rows.h");
  std::string pattern(row.pattern);
  replace_all(pattern, "<axes>", "at::IntArrayRef" + list(axes));
  replace_all(pattern, "<keep>", boolean(keeps_dims(node)));
  // ATen sums small integers in int64.
  if (!ir::is_floating(node.input(0).type.dtype)) pattern += text(".to(", scalar_type(node.input(0).type.dtype), ")");
  assign_pattern(emitter, pattern, row.header);
}

bool reduces_an_axis(const NodeView& node) {
  const auto axes = reduced_axes(node, node.input(0).type.shape.size());
  return axes.ok() && !axes->empty();
}

/// Number of elements behind one output element, as C++ of type double.
std::string count_text(const Emitter& emitter, const ir::Shape& shape, const std::vector<int>& axes) {
  ir::Dim count;
  for (int axis : axes) {
    count.factor *= shape[static_cast<size_t>(axis)].factor;
    count.power += shape[static_cast<size_t>(axis)].power;
  }
  return text("static_cast<double>(", emitter.dim(count), ")");
}

void emit_reduce_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ReduceRow& row = reduce_row_of(node.node());
  const ir::Shape& shape = node.output(0).type.shape;
  const std::vector<int> axes = reduced_axes(node, shape.size()).value();
  const std::string reshape = keeps_dims(node) ? "" : text(".reshape(", emitter.dims(reduced(shape, axes, true)), ")");
  std::string pattern(row.gradient_pattern);
  const size_t output = row.reads == Reads::kBoth ? 2 : 1;
  replace_all(pattern, "<g>", "$0" + reshape);
  replace_all(pattern, "<y>", text("$", output, reshape));
  replace_all(pattern, "<axes>", "at::IntArrayRef" + list(axes));
  replace_all(pattern, "<in>", emitter.dims(shape));
  replace_all(pattern, "<count>", count_text(emitter, shape, axes));
  assign_pattern(emitter, pattern, row.gradient_header);
}

// --- ReduceProd: ATen multiplies over one axis at a time, and its gradient must not divide by a zero factor ---

void emit_prod(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const std::vector<int> axes = reduced_axes(node, node.input(0).type.shape.size()).value();
  std::string expression = emitter.in(0);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    expression += text(".prod(", *axis, ", ", boolean(keeps_dims(node)), ")");
  }
  if (axes.empty()) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  if (!ir::is_floating(node.input(0).type.dtype)) {
    expression += text(".to(", scalar_type(node.input(0).type.dtype), ")");
  }
  emitter.assign(0, expression, "ATen/core/Tensor.h");
}

/// The reduced axes are moved to the end and merged; the product of the other elements is (product of those before)
/// times (product of those after).
void emit_prod_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape& shape = node.output(0).type.shape;
  const std::vector<int> axes = reduced_axes(node, shape.size()).value();
  if (axes.empty()) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  std::vector<int> order, inverse(shape.size());
  ir::Shape joined, moved;
  ir::Dim length;
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
    if (std::ranges::find(axes, axis) == axes.end()) order.push_back(axis);
  }
  for (int axis : order) joined.push_back(shape[static_cast<size_t>(axis)]);
  for (int axis : axes) {
    order.push_back(axis);
    length.factor *= shape[static_cast<size_t>(axis)].factor;
    length.power += shape[static_cast<size_t>(axis)].power;
  }
  joined.push_back(length);
  for (size_t i = 0; i < order.size(); ++i) {
    moved.push_back(shape[static_cast<size_t>(order[i])]);
    inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  ir::Shape column = joined;
  column.back() = ir::Dim::fixed(1);
  const std::string x = emitter.local("x"), ones = emitter.local("ones"), before = emitter.local("before"),
                    after = emitter.local("after"), n = emitter.dim(length);
  const auto line = [&](const auto&... parts) { emitter.statement(text(parts...), kTensorLists); };
  line("at::Tensor ", x, " = ", emitter.in(1), ".permute(", list(order), ").reshape(", emitter.dims(joined), ");");
  line("at::Tensor ", ones, " = ", x, ".new_ones(", emitter.dims(column), ");");
  line("at::Tensor ", before, " = graphpipe::runtime::concat({", ones, ", ", x, ".narrow(-1, 0, ", n,
       " - 1)}, -1).cumprod(-1);");
  line("at::Tensor ", after, " = graphpipe::runtime::concat({", ones, ", ", x, ".narrow(-1, 1, ", n,
       " - 1).flip({-1})}, -1).cumprod(-1).flip({-1});");
  emitter.assign(0,
                 text("at::mul(", before, ", ", after, ").mul(", emitter.in(0), ".reshape(", emitter.dims(column),
                      ")).reshape(", emitter.dims(moved), ").permute(", list(inverse), ")"),
                 kMulHeader);
}

Status prod_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  builder.set_input_gradient(
      0, builder.add_one(0, "ReduceProdGrad", {builder.output_gradient(0), builder.input(0)}, attributes));
  return Ok{};
}

/// Over the samples, or over other axes of what is already a sum or mean over the samples.
SampleSum reduction_of_samples(const NodeView& node, std::span<const SampleSum> inputs) {
  const std::string& op = node.node().op;
  const bool sum = op == "ReduceSum", mean = op == "ReduceMean";
  if (mean && !ir::is_floating(node.output(0).type.dtype)) return SampleSum::kNone;  // it is rounded
  if (node.input(0).batch == ir::BatchKind::kMixed) return sum || mean ? inputs[0] : SampleSum::kNone;
  if (node.input(0).batch == ir::BatchKind::kNone) return SampleSum::kNone;
  return mean ? SampleSum::kMean : SampleSum::kSum;
}

// --- entries ---

Work reduce_work(const NodeView& node, Samples samples) { return per_input_element(node, samples, 1); }

using Ints = std::vector<int64_t>;
ir::Attributes over(Ints axes, int64_t keepdims) { return {{"axes", std::move(axes)}, {"keepdims", keepdims}}; }

std::vector<Example> examples_of(Fill fill) {
  return {{.inputs = {drawn(fill, {kB, 3, 4})}, .attributes = over({-1}, 1)},
          {.inputs = {drawn(fill, {kB, 3, 4})}, .attributes = over({0, 1}, 0)},
          {.inputs = {drawn(fill, {kB, 3})}, .attributes = {{"keepdims", int64_t{0}}}}};
}

Example gradient_example(Reads reads, Fill fill) {
  Example example{.inputs = {normal({kB, 3})}, .attributes = over({1}, 0)};
  example.inputs[0].shape = {kB};
  example.attributes.set("shape", shape_of({kB, 3}));
  if (reads == Reads::kInput || reads == Reads::kBoth) example.inputs.push_back(drawn(fill, {kB, 3}));
  if (reads == Reads::kOutput || reads == Reads::kBoth) example.inputs.push_back(positive({kB}));
  return example;
}

/// A gradient that is repeated moves no elements.
Work repeating_work(const NodeView& node, Samples samples) {
  return {.flops = elements(node.input(0), samples), .bytes = 2 * bytes_of(node.input(0), samples)};
}
/// Two tensors of booleans, which are summed as int64.
Work extremum_gradient_work(const NodeView& node, Samples samples) {
  constexpr double kBoolean = 1, kInteger = 8;
  Work work = one_flop_per_element(node, samples);
  work.scratch =
      elements(node.output(0), samples) * (2 * kBoolean + kInteger) + elements(node.input(0), samples) * kInteger;
  return work;
}
std::vector<int> axes_of_gradient(const NodeView& node) {
  return reduced_axes(node, node.output(0).type.shape.size()).value();
}

void add_rows(const ReduceRow& row, std::vector<OpDef>& all) {
  const bool is_extremum = row.name == "ReduceMax" || row.name == "ReduceMin";
  OpDef forward{.name = row.name,
                .precision = is_extremum ? Precision::kAsInputs : Precision::kFloat32,
                .infer = infer_reduce,
                .work = reduce_work,
                .temporaries = row.name == "ReduceLogSumExp" ? 1.25 : temporaries_of(row.pattern),
                .gradient = reduce_gradient,
                .emit = emit_reduce,
                .owns_outputs = reduces_an_axis,
                .examples = examples_of(row.fill)};
  if (row.takes_integers) {
    forward.examples.push_back({.inputs = {integers({kB, 5}, -9, 10)}, .attributes = over({1}, 1)});
  }
  if (row.name == "ReduceSum" || row.name == "ReduceMean" || row.name == "ReduceL1" || row.name == "ReduceSumSquare")
    forward.sample_sum = reduction_of_samples;
  all.push_back(std::move(forward));
  const bool repeats = row.gradient_pattern.ends_with(".expand(<in>)");
  all.push_back({.name = row.gradient_name,
                 .infer = infer_reduce_gradient,
                 .work = is_extremum ? extremum_gradient_work
                         : repeats   ? repeating_work
                                     : one_flop_per_element,
                 // Temporaries made only from the output are small.
                 .temporaries = is_extremum || repeats ? 0 : temporaries_of(row.gradient_pattern),
                 .emit = emit_reduce_gradient,
                 .is_view = row.gradient_name == "ReduceSumGrad" ? always : nullptr,
                 .repeated_axes = repeats ? axes_of_gradient : nullptr,
                 .examples = {gradient_example(row.reads, row.fill)}});
}

}  // namespace

std::span<const OpDef> reduce_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all;
    for (const ReduceRow& row : kTable) add_rows(row, all);
    std::vector<Example> examples = examples_of(Fill::kPermutation);
    examples.push_back({.inputs = {integers({kB, 3}, -2, 3)}, .attributes = over({1}, 1)});
    all.push_back({.name = "ReduceProd",
                   .precision = Precision::kFloat32,
                   .infer = infer_reduction,
                   .work = reduce_work,
                   .gradient = prod_gradient,
                   .emit = emit_prod,
                   .examples = std::move(examples)});
    all.push_back({.name = "ReduceProdGrad",
                   .infer = infer_reduce_gradient,
                   .work = one_flop_per_element,
                   .temporaries = 4,
                   .emit = emit_prod_gradient,
                   .examples = {gradient_example(Reads::kInput, Fill::kNormal)}});
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
