// Ops in which the position of an element matters: ArgMax, ArgMin, TopK, CumSum, CumProd, Trilu, OneHot. Along the
// batch axis they mix samples.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

Mixing mixing_along_axis(const NodeView& node, int axis) {
  return is_batch_axis(node, 0, axis) ? Mixing::kMixes : Mixing::kNone;
}

int axis_of(const NodeView& node, int64_t fallback) {
  return axis_attribute(node, "axis", fallback, node.input(0).type.shape.size()).value();
}

// --- ArgMax, ArgMin ---

Inferred infer_arg_extremum(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, shape.size()));
  const Mixing mixing = mixing_along_axis(node, axis);
  if (node.attributes().get_int("keepdims", 1) != 0) {
    shape[static_cast<size_t>(axis)] = ir::Dim::fixed(1);
  } else {
    shape.erase(shape.begin() + axis);
  }
  return one_output(node, {ir::DType::kInt64, std::move(shape)}, mixing);
}

/// ATen returns the first of equal elements; the last one is found by searching from the other end.
void emit_arg_extremum(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const bool max = node.node().op == "ArgMax", last = node.attributes().get_int("select_last_index", 0) != 0;
  const int axis = axis_of(node, 0);
  const std::string input = last ? text(emitter.in(0), ".flip({", axis, "})") : emitter.in(0);
  std::string found = text(max ? "at::argmax(" : "at::argmin(", input, ", ", axis, ", ",
                           boolean(node.attributes().get_int("keepdims", 1) != 0), ")");
  if (last) {
    const ir::Dim size = node.input(0).type.shape[static_cast<size_t>(axis)];
    found += text(".neg().add(", emitter.dim(size), " - 1)");
  }
  emitter.assign(0, found, max ? "ATen/ops/argmax.h" : "ATen/ops/argmin.h");
}

// --- TopK{k, axis, largest}: values and indices; of equal elements the one with the lower index comes first ---

Inferred infer_top_k(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  ir::TensorType type = node.input(0).type;
  GP_TRY(const int axis, axis_attribute(node, "axis", -1, type.shape.size()));
  if (is_batch_axis(node, 0, axis)) {
    return problem_at(node, Code::kMixesSamples, "ranks samples against each other",
                      "move this node out of the model, or check which axis is the batch");
  }
  const int64_t k = node.attributes().get_int("k", 0);
  ir::Dim& dim = type.shape[static_cast<size_t>(axis)];
  if (k < 0 || k > dim.factor) return bad_model(node, text("asks for ", k, " of ", dim.factor, " elements"));
  dim = ir::Dim::fixed(k);
  const ir::TensorType indices = {ir::DType::kInt64, type.shape};
  return checked(node, {make_value(node, type), make_value(node, indices)});
}

void emit_top_k(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const bool largest = node.attributes().get_int("largest", 1) != 0;
  assign_parts(emitter,
               text("graphpipe::runtime::top_k(", emitter.in(0), ", ", node.attributes().get_int("k", 0), ", ",
                    axis_of(node, -1), ", ", boolean(largest), ")"),
               "runtime/kernels/top_k.h", 2);
}

Status top_k_gradient(GradientBuilder& builder) {
  if (!builder.wants(0) || !builder.output_gradient(0).valid()) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(
             0, "GatherElementsGrad", {builder.output_gradient(0), builder.output(1)},
             {{"axis", int64_t{axis_of(builder.forward(), -1)}}, {"shape", builder.forward().input(0).type.shape}}));
  return Ok{};
}

// --- CumSum{axis, exclusive, reverse} ---

Inferred infer_cumulative(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, node.input(0).type.shape.size()));
  return one_output(node, node.input(0).type, mixing_along_axis(node, axis));
}

void emit_cum_sum(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const int axis = axis_of(node, 0);
  const bool reverse = node.attributes().get_int("reverse", 0) != 0;
  const std::string flip = reverse ? text(".flip({", axis, "})") : "";
  std::string terms = emitter.in(0) + flip;
  if (node.attributes().get_int("exclusive", 0) != 0) {
    // Shifted, instead of subtracting the element again: that would give NaN for infinities, and lose small terms of
    // large sums.
    const std::string size = emitter.dim(node.output(0).type.shape[static_cast<size_t>(axis)]);
    terms = text("graphpipe::runtime::concat({at::zeros_like(", emitter.in(0), ".narrow(", axis, ", 0, 1)), ", terms,
                 ".narrow(", axis, ", 0, ", size, " - 1)}, ", axis, ")");
    emitter.include("ATen/ops/zeros_like.h");
    emitter.include(kTensorLists);
  }
  // ATen would sum small integers in int64.
  emitter.assign(0, text("at::cumsum(", terms, ", ", axis, ", ", emitter.in(0), ".scalar_type())", flip),
                 "ATen/ops/cumsum.h");
}

Status cum_sum_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("reverse", int64_t{attributes.get_int("reverse", 0) == 0});
  builder.set_input_gradient(0, builder.add_one(0, "CumSum", {builder.output_gradient(0)}, attributes));
  return Ok{};
}

// --- CumProd{axis, exclusive, reverse} ---

struct CumProd {
  int axis;
  bool exclusive;
  std::string size, flip;  // C++: elements along the axis, and the call that reverses it
};

CumProd cum_prod_of(const Emitter& emitter) {
  const NodeView& node = emitter.node();
  const int axis = axis_of(node, 0);
  const bool reverse = node.attributes().get_int("reverse", 0) != 0;
  return {.axis = axis,
          .exclusive = node.attributes().get_int("exclusive", 0) != 0,
          .size = emitter.dim(node.output(0).type.shape[static_cast<size_t>(axis)]),
          .flip = reverse ? text(".flip({", axis, "})") : ""};
}

/// Declares the factors in the order of their products, and returns their name.
std::string cum_prod_factors(Emitter& emitter, const CumProd& form, size_t input) {
  const std::string name = emitter.local("factors"), all = emitter.in(input) + form.flip;
  const std::string shifted =
      text("graphpipe::runtime::concat({at::ones_like(", emitter.in(input), ".narrow(", form.axis, ", 0, 1)), ", all,
           ".narrow(", form.axis, ", 0, ", form.size, " - 1)}, ", form.axis, ")");
  emitter.include("ATen/ops/ones_like.h");
  emitter.statement(text("const at::Tensor ", name, " = ", form.exclusive ? shifted : all, ";"), kTensorLists);
  return name;
}

void emit_cum_prod(Emitter& emitter) {
  const CumProd form = cum_prod_of(emitter);
  const std::string factors = cum_prod_factors(emitter, form, 0);
  // ATen would multiply small integers in int64.
  emitter.assign(0, text("at::cumprod(", factors, ", ", form.axis, ", ", factors, ".scalar_type())", form.flip),
                 "ATen/ops/cumprod.h");
}

Status cum_prod_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, "CumProdGrad", {builder.output_gradient(0), builder.input(0)},
                                                builder.forward().attributes()));
  return Ok{};
}

/// (gradient, x)
Inferred infer_cum_prod_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY(const int axis, axis_attribute(node, "axis", 0, node.input(0).type.shape.size()));
  return one_output(node, node.input(1).type, mixing_along_axis(node, axis));
}

void emit_cum_prod_gradient(Emitter& emitter) {
  const CumProd form = cum_prod_of(emitter);
  const std::string factors = cum_prod_factors(emitter, form, 1), back = emitter.local("back");
  emitter.statement(text("const at::Tensor ", back, " = at::cumprod_backward(", emitter.in(0), form.flip, ", ", factors,
                         ", ", form.axis, ", ", factors, ".cumprod(", form.axis, "));"),
                    "ATen/ops/cumprod_backward.h");
  // The last factor is in none of the exclusive products.
  const std::string shifted =
      text("graphpipe::runtime::concat({", back, ".narrow(", form.axis, ", 1, ", form.size, " - 1), at::zeros_like(",
           back, ".narrow(", form.axis, ", 0, 1))}, ", form.axis, ")");
  emitter.assign(0, (form.exclusive ? shifted : back) + form.flip, "ATen/ops/zeros_like.h");
}

// --- Trilu{k, upper} ---

Inferred infer_trilu(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::TensorType& type = node.input(0).type;
  const auto rank = static_cast<int>(type.shape.size());
  if (rank < 2) return bad_model(node, "needs a matrix");
  const bool mixes = is_batch_axis(node, 0, rank - 1) || is_batch_axis(node, 0, rank - 2);
  return one_output(node, type, mixes ? Mixing::kMixes : Mixing::kNone);
}

void emit_trilu(Emitter& emitter) {
  const ir::Attributes& attributes = emitter.node().attributes();
  const bool upper = attributes.get_int("upper", 1) != 0;
  emitter.assign(0, text(upper ? "at::triu(" : "at::tril(", emitter.in(0), ", ", attributes.get_int("k", 0), ")"),
                 upper ? "ATen/ops/triu.h" : "ATen/ops/tril.h");
}

Status trilu_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "Trilu", {builder.output_gradient(0)}, builder.forward().attributes()));
  return Ok{};
}

// --- OneHot{depth, axis, off, on, to} ---

Inferred infer_one_hot(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_index(node, {0}));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY(const int axis, axis_attribute(node, "axis", -1, shape.size() + 1));
  const std::optional<ir::DType> dtype = ir::dtype_of_name(node.attributes().get_string("to", "f32"));
  if (!dtype) return problem_at(node, Code::kUnsupportedType, "gives an unknown type", "use a float or integer type");
  shape.insert(shape.begin() + axis, ir::Dim::fixed(node.attributes().get_int("depth", 0)));
  return one_output(node, {*dtype, std::move(shape)});
}

void emit_one_hot(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::TensorType& type = node.output(0).type;
  const int axis = axis_attribute(node, "axis", -1, type.shape.size()).value();
  const int64_t depth = node.attributes().get_int("depth", 0);
  const double off = node.attributes().get_double("off", 0), on = node.attributes().get_double("on", 1);
  ir::Shape places(type.shape.size(), ir::Dim::fixed(1));
  places[static_cast<size_t>(axis)] = ir::Dim::fixed(depth);
  // Indices in [-depth, depth) are valid; others give a row of `off`.
  const std::string in = emitter.in(0), row = emitter.local("places");
  emitter.statement(
      text("at::Tensor ", row, " = at::arange(", depth, ", ", in, ".options()).reshape(", emitter.dims(places), ");"),
      "ATen/ops/arange.h");
  const std::string at = text(in, ".unsqueeze(", axis, ")");
  const std::string hot = text("at::eq(", at, ", ", row, ").logical_or(", at, ".add(", depth, ").eq(", row, "))");
  // Whole numbers up to 2^53, which a double represents exactly. Each is used separately: a sum of both would round one
  // away.
  const auto scalar = [&](double value) {
    const std::string word =
        ir::is_floating(type.dtype) ? number(value) : text("int64_t{", static_cast<int64_t>(value), "}");
    return text("at::scalar_tensor(", word, ", ", in, ".options().dtype(", scalar_type(type.dtype), "))");
  };
  emitter.include("ATen/ops/eq.h");
  emitter.include("ATen/ops/scalar_tensor.h");
  emitter.assign(0, text("at::where(", hot, ", ", scalar(on), ", ", scalar(off), ")"), "ATen/ops/where.h");
}

// --- entries ---

ir::Attributes axis_alone(int64_t axis) { return {{"axis", axis}}; }

/// For CumSum and CumProd.
std::vector<Example> cumulative_examples() {
  return {{.inputs = {normal({kB, 4})}, .attributes = axis_alone(1)},
          {.inputs = {normal({kB, 4, 2})},
           .attributes = {{"axis", int64_t{1}}, {"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
          {.inputs = {integers({kB, 4}, 0, 5, ir::DType::kInt32)}, .attributes = axis_alone(1)}};
}

std::vector<Example> arg_examples() {
  return {
      {.inputs = {distinct({kB, 5, 2})}, .attributes = {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}},
      {.inputs = {integers({kB, 9}, 0, 3)}, .attributes = axis_alone(-1)},
      {.inputs = {integers({kB, 9}, 0, 3)}, .attributes = {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}}};
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
std::span<const OpDef> order_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "ArgMax",
       .infer = infer_arg_extremum,
       .work = [](const NodeView& node, Samples samples) { return per_input_element(node, samples, 1); },
       .temporaries = 1.25,
       .emit = emit_arg_extremum,
       .examples = arg_examples()},
      {.name = "ArgMin",
       .infer = infer_arg_extremum,
       .work = [](const NodeView& node, Samples samples) { return per_input_element(node, samples, 1); },
       .temporaries = 1.25,
       .emit = emit_arg_extremum,
       .examples = arg_examples()},
      {.name = "TopK",
       .infer = infer_top_k,
       .work = [](const NodeView& node, Samples samples) { return per_input_element(node, samples, 10); },
       .temporaries = 2,
       .gradient = top_k_gradient,
       .emit = emit_top_k,
       .examples = {{.inputs = {distinct({kB, 6})},
                     .attributes = {{"k", int64_t{3}}, {"axis", int64_t{1}}},
                     .outputs = 2},
                    {.inputs = {distinct({kB, 5, 2})},
                     .attributes = {{"k", int64_t{2}}, {"axis", int64_t{1}}, {"largest", int64_t{0}}},
                     .outputs = 2}}},
      {.name = "CumSum",
       .precision = Precision::kFloat32,
       .infer = infer_cumulative,
       .work = one_flop_per_element,
       .temporaries = 3.25,
       .gradient = cum_sum_gradient,
       .emit = emit_cum_sum,
       .examples = cumulative_examples()},
      {.name = "CumProd",
       .precision = Precision::kFloat32,
       .infer = infer_cumulative,
       .work = one_flop_per_element,
       .temporaries = 2,
       .gradient = cum_prod_gradient,
       .emit = emit_cum_prod,
       .examples = cumulative_examples()},
      {.name = "CumProdGrad",
       .precision = Precision::kFloat32,
       .infer = infer_cum_prod_gradient,
       .work = one_flop_per_element,
       .temporaries = 6.25,
       .emit = emit_cum_prod_gradient,
       .examples = {{.inputs = {normal({kB, 4}), normal({kB, 4})}, .attributes = axis_alone(1)}}},
      {.name = "Trilu",
       .infer = infer_trilu,
       .work = copy_work,
       .gradient = trilu_gradient,
       .emit = emit_trilu,
       .examples = {{.inputs = {normal({kB, 3, 4})}, .attributes = {{"k", int64_t{1}}}},
                    {.inputs = {normal({kB, 3, 3})}, .attributes = {{"upper", int64_t{0}}, {"k", int64_t{-1}}}}}},
      {.name = "OneHot",
       .infer = infer_one_hot,
       .work = copy_work,
       .temporaries = 2.5,
       .emit = emit_one_hot,
       .examples =
           {{.inputs = {integers({kB, 3}, -5, 7)}, .attributes = {{"depth", int64_t{5}}, {"to", std::string("f32")}}},
            {.inputs = {integers({kB}, 0, 4)},
             .attributes =
                 {{"depth", int64_t{4}}, {"axis", int64_t{0}}, {"off", -1.0}, {"on", 2.5}, {"to", std::string("f32")}}},
            {.inputs = {integers({kB, 2}, 0, 3)},
             .attributes = {{"depth", int64_t{3}}, {"off", 1.0}, {"on", 7.0}, {"to", std::string("i64")}}},
            {.inputs = {integers({kB, 2}, 0, 3)}, .attributes = {{"depth", int64_t{3}}, {"to", std::string("bool")}}}}},
  };
  return rows;
}

}  // namespace graphpipe::ops
