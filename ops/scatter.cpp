// ScatterElements{axis, reduction}: data with some elements replaced by, or combined with, updates. Reductions: none,
// add, mul, max, min.
//
// Derivatives at one position to which the elements d (data) and u_1, u_2, .. (updates) contribute:
//  - add: 1 for each of them;
//  - mul: the product of all others, also where factors are zero;
//  - max, min: 1 / n for each of the n elements that equal the result, as PyTorch divides it.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/index_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

enum class ScatterReduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

Result<ScatterReduction> scatter_reduction(const NodeView& node) {
  const std::string name = node.attributes().get_string("reduction", "none");
  constexpr std::string_view kReductions[] = {"none", "add", "mul", "max", "min"};
  for (size_t i = 0; i < std::size(kReductions); ++i) {
    if (name == kReductions[i]) return static_cast<ScatterReduction>(i);
  }
  return bad_model(node, text("has the reduction ", quoted(ModelText(name))));
}

bool is_extreme(ScatterReduction reduction) {
  return reduction == ScatterReduction::kMax || reduction == ScatterReduction::kMin;
}

/// ATen's name for it in scatter_reduce.
std::string_view aten_reduction(ScatterReduction reduction) {
  if (reduction == ScatterReduction::kMul) return "prod";
  return reduction == ScatterReduction::kMax ? "amax" : "amin";
}

/// The type of the data, which is also that of the output and of the gradient with respect to the data.
Inferred infer_like_data(const NodeView& node, size_t data_input) {
  GP_TRY_VOID(expect_index(node, {1}));
  GP_TRY_VOID(scatter_reduction(node));
  const ir::TensorType& data = node.input(data_input).type;
  GP_TRY(const int axis, element_axis(node, data.shape, node.input(1).type.shape));
  return one_output(node, data, mixing_along(data.shape, static_cast<size_t>(axis)));
}

Status expect_updates(const NodeView& node, size_t data, size_t updates) {
  GP_TRY_VOID(expect_same_dtype(node, {data, updates}));
  if (node.input(updates).type.shape == node.input(1).type.shape) return Ok{};
  return bad_model(node, "needs as many updates as indices");
}

Inferred infer_scatter_elements(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_updates(node, 0, 2));
  return infer_like_data(node, 0);
}

/// "at::scatter_reduce(data, axis, indices, updates, "prod")".
std::string scatter_reduce_call(Emitter& emitter, std::string_view data, int axis, std::string_view indices,
                                std::string_view updates, ScatterReduction reduction) {
  emitter.include("ATen/ops/scatter_reduce.h");
  return text("at::scatter_reduce(", data, ", ", axis, ", ", indices, ", ", updates, ", \"", aten_reduction(reduction),
              "\")");
}

void emit_scatter_elements(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape& data = node.input(0).type.shape;
  const int axis = checked_axis(node, data);
  const std::string indices = positive_indices(emitter, 1, data, axis);
  const ScatterReduction reduction = scatter_reduction(node).value();
  // The gradient with respect to the data has no updates: their positions become zero.
  const std::string updates = node.has_input(2) ? emitter.in(2) : "0";
  const std::string operands = text("(", emitter.in(0), ", ", axis, ", ", indices, ", ", updates, ")");
  if (reduction == ScatterReduction::kNone)
    return emitter.assign(0, text("at::scatter", operands), "ATen/ops/scatter.h");
  if (reduction == ScatterReduction::kAdd)
    return emitter.assign(0, text("graphpipe::runtime::scatter_add", operands), kFixedOrder);
  emitter.assign(0, scatter_reduce_call(emitter, emitter.in(0), axis, indices, updates, reduction),
                 "ATen/ops/scatter_reduce.h");
}

Status scatter_elements_gradient(GradientBuilder& builder) {
  const NodeView& node = builder.forward();
  GP_TRY(const ScatterReduction reduction, scatter_reduction(node));
  ir::Attributes attributes = {{"axis", int64_t{checked_axis(node, node.input(0).type.shape)}}};
  std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(1)};
  if (reduction == ScatterReduction::kNone || reduction == ScatterReduction::kAdd) {
    if (builder.wants(0)) {
      const bool adds = reduction == ScatterReduction::kAdd;
      builder.set_input_gradient(0,
                                 adds ? inputs[0] : builder.add_one(0, "ScatterElementsGradData", inputs, attributes));
    }
    if (builder.wants(2)) builder.set_input_gradient(2, builder.add_one(2, "GatherElements", inputs, attributes));
    return Ok{};
  }
  inputs.insert(inputs.end(), {builder.input(0), builder.input(2)});
  if (is_extreme(reduction)) inputs.push_back(builder.output(0));
  attributes.set("reduction", node.attributes().get_string("reduction", "none"));
  if (builder.wants(0)) builder.set_input_gradient(0, builder.add_one(0, "ScatterReduceGradData", inputs, attributes));
  if (builder.wants(2))
    builder.set_input_gradient(2, builder.add_one(2, "ScatterReduceGradUpdates", inputs, attributes));
  return Ok{};
}

/// (gradient, indices)
Inferred infer_scatter_elements_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  return infer_like_data(node, 0);
}

// --- gradients of mul, max and min: (gradient, indices, data, updates, and for max and min the result) ---

Status expect_reduced(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 4, 5));
  GP_TRY(const ScatterReduction reduction, scatter_reduction(node));
  const bool is_complete = is_extreme(reduction) ? node.has_input(4) : reduction == ScatterReduction::kMul;
  if (!is_complete) return bad_model(node, "does not fit its reduction");
  GP_TRY_VOID(expect_same_type(node, 0, 2));
  return expect_updates(node, 2, 3);
}

Inferred infer_reduced_gradient_of_data(const NodeView& node) {
  GP_TRY_VOID(expect_reduced(node));
  return infer_like_data(node, 2);
}

Inferred infer_reduced_gradient_of_updates(const NodeView& node) {
  GP_TRY_VOID(expect_reduced(node));
  GP_TRY(const int axis, element_axis(node, node.input(2).type.shape, node.input(1).type.shape));
  return one_output(node, node.input(3).type, mixing_along(node.input(2).type.shape, static_cast<size_t>(axis)));
}

/// One such node while it is emitted.
class ReducedGradient {
 public:
  explicit ReducedGradient(Emitter& emitter)
      : emitter_(emitter),
        data_shape_(emitter.node().input(2).type.shape),
        axis_(checked_axis(emitter.node(), data_shape_)),
        indices_(positive_indices(emitter, 1, data_shape_, axis_)),
        reduction_(scatter_reduction(emitter.node()).value()) {}

  ScatterReduction reduction() const { return reduction_; }

  /// The elements of `everywhere` at the positions of the updates.
  std::string at_updates(std::string_view everywhere) const {
    emitter_.include("ATen/ops/gather.h");
    return text("at::gather(", everywhere, ", ", axis_, ", ", indices_, ")");
  }
  std::string summed(std::string_view data, std::string_view updates) const {
    emitter_.include(kFixedOrder);
    return text("graphpipe::runtime::scatter_add(", data, ", ", axis_, ", ", indices_, ", ", updates, ")");
  }
  std::string reduced(std::string_view data, std::string_view updates) const {
    return scatter_reduce_call(emitter_, data, axis_, indices_, updates, reduction_);
  }
  /// Declares a tensor and returns its name.
  std::string declared(std::string_view name, const std::string& expression) const {
    const std::string result = emitter_.local(name);
    emitter_.statement(text("at::Tensor ", result, " = ", expression, ";"), "ATen/core/Tensor.h");
    return result;
  }
  /// 1 where an operand, "data" or "updates", equals the result at its position, otherwise 0.
  std::string wins(std::string_view name, size_t operand, const std::string& result) const {
    return declared(name, text(emitter_.in(operand), ".eq(", result, ").to(", emitter_.in(0), ".scalar_type())"));
  }

 private:
  Emitter& emitter_;
  const ir::Shape& data_shape_;
  int axis_;
  std::string indices_;
  ScatterReduction reduction_;
};

void emit_reduced_gradient_of_data(Emitter& emitter) {
  const ReducedGradient gradient(emitter);
  const std::string all = emitter.in(0), data = emitter.in(2), updates = emitter.in(3);
  if (gradient.reduction() == ScatterReduction::kMul)
    return emitter.assign(
        0, text(all, ".mul(", gradient.reduced(data + ".new_ones({}).expand_as(" + data + ")", updates), ")"),
        "ATen/ops/scatter_reduce.h");
  const std::string data_wins = gradient.wins("data_wins", 2, emitter.in(4));
  const std::string update_wins = gradient.wins("update_wins", 3, gradient.at_updates(emitter.in(4)));
  emitter.assign(0, text(all, ".mul(", data_wins, ").div(", gradient.summed(data_wins, update_wins), ")"), kFixedOrder);
}

/// The product of the other factors at the update's position: if there are no zeros among them, the product of all
/// nonzero factors, divided by the update if it is one of them.
void emit_gradient_of_factors(Emitter& emitter, const ReducedGradient& gradient) {
  const std::string data = emitter.in(2), updates = emitter.in(3);
  const auto without_zeros = [](const std::string& name) { return text(name, ".masked_fill(", name, ".eq(0), 1)"); };
  const auto zeros = [](const std::string& name) { return text(name, ".eq(0).to(", name, ".scalar_type())"); };
  const std::string factors = gradient.declared("factors", without_zeros(updates));
  const std::string is_zero = gradient.declared("is_zero", zeros(updates));
  const std::string product = gradient.at_updates(gradient.reduced(without_zeros(data), factors));
  const std::string other_zeros =
      text(gradient.at_updates(gradient.summed(zeros(data), is_zero)), ".sub(", is_zero, ")");
  emitter.assign(0,
                 text(gradient.at_updates(emitter.in(0)), ".mul(", product, ").div(", factors, ").masked_fill(",
                      other_zeros, ".ne(0), 0)"),
                 "ATen/ops/gather.h");
}

void emit_reduced_gradient_of_updates(Emitter& emitter) {
  const ReducedGradient gradient(emitter);
  if (gradient.reduction() == ScatterReduction::kMul) return emit_gradient_of_factors(emitter, gradient);
  const std::string data_wins = gradient.wins("data_wins", 2, emitter.in(4));
  const std::string update_wins = gradient.wins("update_wins", 3, gradient.at_updates(emitter.in(4)));
  const std::string shares = text(emitter.in(0), ".div(", gradient.summed(data_wins, update_wins), ")");
  emitter.assign(0, text(gradient.at_updates(shares), ".mul(", update_wins, ")"), "ATen/ops/gather.h");
}

// --- entries ---

ir::Attributes by(std::string reduction) { return {{"axis", int64_t{1}}, {"reduction", std::move(reduction)}}; }

/// Whole numbers as floats: includes zeros and ties.
ExampleInput small_floats(const ExampleShape& dims) { return integers(dims, 0, 3, ir::DType::kFloat32); }

std::vector<OpDef> scatter_elements_rows() {
  const ir::Attributes along = {{"axis", int64_t{1}}};
  // Without a reduction, no position may occur twice: the order of writing would matter.
  const ExampleInput once = integers({kB, 1}, -4, 4);
  const ExampleInput often = integers({kB, 6}, 0, 4);
  return {
      {.name = "ScatterElements",
       .infer = infer_scatter_elements,
       .work = indexed_copy_work,
       .gradient = scatter_elements_gradient,
       .emit = emit_scatter_elements,
       .default_axis = 0,
       .examples = {{.inputs = {normal({kB, 4}), once, normal({kB, 1})}, .attributes = along},
                    {.inputs = {normal({kB, 4}), often, normal({kB, 6})}, .attributes = by("add")},
                    {.inputs = {normal({kB, 4}), often, normal({kB, 6})}, .attributes = by("mul")},
                    {.inputs = {small_floats({kB, 4}), often, small_floats({kB, 6})}, .attributes = by("mul")},
                    {.inputs = {normal({kB, 4}), often, normal({kB, 6})}, .attributes = by("max")},
                    {.inputs = {normal({kB, 4, 3}), integers({kB, 5, 2}, -4, 4), normal({kB, 5, 2})},
                     .attributes = by("min")}}},
      {.name = "ScatterElementsGradData",
       .infer = infer_scatter_elements_gradient,
       .work = indexed_copy_work,
       .emit = emit_scatter_elements,
       .examples = {{.inputs = {normal({kB, 4}), once}, .attributes = along}}},
  };
}

/// Scattering and gathering, three times each.
Work reduced_gradient_work(const NodeView& node, Samples samples) {
  Work work = copy_work(node, samples);
  work.bytes *= 3;
  return work;
}

std::vector<OpDef> reduced_gradient_rows() {
  const std::vector<Example> examples = {
      {.inputs = {normal({kB, 4}), integers({kB, 6}, 0, 4), normal({kB, 4}), normal({kB, 6})}, .attributes = by("mul")},
      {.inputs = {normal({kB, 4}), integers({kB, 6}, 0, 4), small_floats({kB, 4}), small_floats({kB, 6}),
                  small_floats({kB, 4})},
       .attributes = by("max")}};
  return {{.name = "ScatterReduceGradData",
           .infer = infer_reduced_gradient_of_data,
           .work = reduced_gradient_work,
           .temporaries = 3.5,
           .emit = emit_reduced_gradient_of_data,
           .examples = examples},
          {.name = "ScatterReduceGradUpdates",
           .infer = infer_reduced_gradient_of_updates,
           .work = reduced_gradient_work,
           .temporaries = 6.75,
           .emit = emit_reduced_gradient_of_updates,
           .examples = examples}};
}

}  // namespace

std::span<const OpDef> scatter_ops() {
  static const std::vector<OpDef> rows = joined({scatter_elements_rows(), reduced_gradient_rows()});
  return rows;
}

}  // namespace graphpipe::ops
