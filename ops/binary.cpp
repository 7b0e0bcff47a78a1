// Element-wise ops of two or more inputs with Numpy's broadcasting: arithmetic, comparison, logic, Where.

#include <algorithm>
#include <vector>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

// --- inference ---

Result<ir::Shape> broadcast_inputs(const NodeView& node, size_t first = 0) {
  ir::Shape shape = node.input(first).type.shape;
  for (size_t i = first + 1; i < node.input_count(); ++i) {
    GP_TRY(shape, broadcast_shapes(node, shape, node.input(i).type.shape));
  }
  return shape;
}

Inferred infer_arithmetic(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  if (node.input(0).type.dtype == ir::DType::kBool) return bad_model(node, "is not defined on booleans");
  GP_TRY(ir::Shape shape, broadcast_inputs(node));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

Inferred infer_variadic(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, node.input_count()));
  for (size_t i = 0; i < node.input_count(); ++i) {
    if (!node.has_input(i)) return bad_model(node, text("needs input ", i, ", which is absent"));
    GP_TRY_VOID(expect_same_dtype(node, {0, i}));
  }
  GP_TRY(ir::Shape shape, broadcast_inputs(node));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

Inferred infer_comparison(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  GP_TRY(ir::Shape shape, broadcast_inputs(node));
  return one_output(node, {ir::DType::kBool, std::move(shape)});
}

Inferred infer_logic(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  for (size_t i = 0; i < 2; ++i) {
    if (node.input(i).type.dtype != ir::DType::kBool) return bad_model(node, "is defined on booleans only");
  }
  return infer_comparison(node);
}

Inferred infer_where(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_same_dtype(node, {1, 2}));
  if (node.input(0).type.dtype != ir::DType::kBool) return bad_model(node, "needs a boolean condition");
  GP_TRY(ir::Shape shape, broadcast_inputs(node));
  return one_output(node, {node.input(1).type.dtype, std::move(shape)});
}

/// Gradient ops: the result has the shape of the gradient (input 0), to which all other inputs broadcast.
Inferred infer_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, node.input_count()));
  GP_TRY_VOID(expect_floating(node, {0}));
  return one_output(node, node.input(0).type);
}

// --- gradients ---

Status add_gradient(GradientBuilder& builder) {
  for (size_t i = 0; i < builder.forward().input_count(); ++i) pass_gradient(builder, i);
  return Ok{};
}

Status sub_gradient(GradientBuilder& builder) {
  pass_gradient(builder, 0);
  if (builder.wants(1)) set_reduced(builder, 1, builder.add_one(1, "Neg", {builder.output_gradient(0)}));
  return Ok{};
}

Status mul_gradient(GradientBuilder& builder) {
  for (size_t i = 0; i < 2; ++i) {
    if (!builder.wants(i)) continue;
    set_reduced(builder, i, builder.add_one(i, "Mul", {builder.output_gradient(0), builder.input(1 - i)}));
  }
  return Ok{};
}

Status div_gradient(GradientBuilder& builder) {
  const ValueId gradient = builder.output_gradient(0);
  if (builder.wants(0)) set_reduced(builder, 0, builder.add_one(0, "Div", {gradient, builder.input(1)}));
  if (builder.wants(1)) {
    set_reduced(builder, 1, builder.add_one(1, "DivGradDivisor", {gradient, builder.output(0), builder.input(1)}));
  }
  return Ok{};
}

Status mod_gradient(GradientBuilder& builder) {
  pass_gradient(builder, 0);
  if (builder.wants(1)) {
    set_reduced(builder, 1,
                builder.add_one(1, "ModGradDivisor", {builder.output_gradient(0), builder.input(0), builder.input(1)},
                                builder.forward().attributes()));
  }
  return Ok{};
}

Status extremum_gradient(GradientBuilder& builder) {
  const size_t count = builder.forward().input_count();
  std::vector<ValueId> inputs = {builder.output_gradient(0), builder.output(0)};
  for (size_t i = 0; i < count; ++i) inputs.push_back(builder.input(i));
  for (size_t i = 0; i < count; ++i) {
    if (!builder.wants(i)) continue;
    set_reduced(builder, i, builder.add_one(i, "ExtremumGrad", inputs, {{"index", static_cast<int64_t>(i)}}));
  }
  return Ok{};
}

Status mean_gradient(GradientBuilder& builder) {
  const size_t count = builder.forward().input_count();
  for (size_t i = 0; i < count; ++i) {
    if (!builder.wants(i)) continue;
    set_reduced(
        builder, i,
        builder.add_one(i, "Scale", {builder.output_gradient(0)}, {{"factor", 1.0 / static_cast<double>(count)}}));
  }
  return Ok{};
}

Status where_gradient(GradientBuilder& builder) {
  const std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(0)};
  if (builder.wants(1)) set_reduced(builder, 1, builder.add_one(1, "WhereGradTrue", inputs));
  if (builder.wants(2)) set_reduced(builder, 2, builder.add_one(2, "WhereGradFalse", inputs));
  return Ok{};
}

// --- emission ---

template <size_t size>
struct Literal {
  constexpr Literal(const char (&from)[size]) { std::copy_n(from, size, chars); }
  char chars[size];
};

/// emit of an op that is one pattern (see assign_pattern).
template <Literal pattern, Literal header>
void emit_as(Emitter& emitter) {
  assign_pattern(emitter, pattern.chars, header.chars);
}

/// A loss times its scale is a product of two numbers.
void emit_mul_in_place(Emitter& emitter) {
  const ir::TensorType number{.dtype = ir::DType::kFloat32, .shape = {}};
  if (emitter.node().input(0).type == number && emitter.node().input(1).type == number)
    assign_pattern(emitter, "graphpipe::runtime::scale_number_($0, $1)", "runtime/kernels/scale_number.h");
  else assign_pattern(emitter, "$0.mul_($1)", "ATen/core/Tensor.h");
}

/// ONNX rounds integer quotients towards zero.
void emit_div(Emitter& emitter) {
  const bool floating = ir::is_floating(emitter.node().input(0).type.dtype);
  assign_pattern(emitter, floating ? "at::div($0, $1)" : "at::div($0, $1, \"trunc\")", "ATen/ops/div.h");
}

bool is_fmod(const NodeView& node) { return node.attributes().get_int("fmod", 0) != 0; }

void emit_mod(Emitter& emitter) {
  if (is_fmod(emitter.node())) return assign_pattern(emitter, "at::fmod($0, $1)", "ATen/ops/fmod.h");
  assign_pattern(emitter, "at::remainder($0, $1)", "ATen/ops/remainder.h");
}

void emit_mod_gradient(Emitter& emitter) {
  const bool trunc = is_fmod(emitter.node());
  assign_pattern(emitter,
                 trunc ? "at::mul($0, $1.div($2, \"trunc\")).neg_()" : "at::mul($0, $1.div($2, \"floor\")).neg_()",
                 "ATen/ops/mul.h");
}

/// f(f(a, b), c) for any number of inputs.
std::string folded(const Emitter& emitter, std::string_view method) {
  std::string result = emitter.in(0);
  for (size_t i = 1; i < emitter.node().input_count(); ++i) result += text(".", method, "(", emitter.in(i), ")");
  return result;
}

void emit_folded(Emitter& emitter, std::string_view function) {
  if (emitter.node().input_count() == 1) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  emitter.assign(0, folded(emitter, function), text("ATen/ops/", function, ".h"));
}
void emit_max(Emitter& emitter) { emit_folded(emitter, "maximum"); }
void emit_min(Emitter& emitter) { emit_folded(emitter, "minimum"); }
void emit_sum(Emitter& emitter) { emit_folded(emitter, "add"); }
void emit_sum_in_place(Emitter& emitter) { emitter.assign(0, folded(emitter, "add_"), kTensorHeader); }
bool has_several_inputs(const NodeView& node) { return node.input_count() > 1; }
void emit_mean(Emitter& emitter) {
  const auto count = static_cast<double>(emitter.node().input_count());
  emitter.assign(0, text("at::div(", folded(emitter, "add"), ", ", number(count), ")"), "ATen/ops/div.h");
}

/// Inputs: gradient, output, the forward inputs. Inputs that tie for the extremum share its gradient equally.
void emit_extremum_gradient(Emitter& emitter) {
  const size_t index = 2 + static_cast<size_t>(emitter.node().attributes().get_int("index", 0));
  if (emitter.node().input_count() == 3) {
    return assign_pattern(emitter, "at::where($2.eq($1), $0, 0.0)", "ATen/ops/where.h");
  }
  const std::string winners = emitter.local("winners");
  std::string sum = text(emitter.in(2), ".eq(", emitter.in(1), ").to(", emitter.in(0), ".scalar_type())");
  for (size_t i = 3; i < emitter.node().input_count(); ++i) {
    sum += text(".add(", emitter.in(i), ".eq(", emitter.in(1), "))");
  }
  emitter.statement(text("at::Tensor ", winners, " = ", sum, ";"), "ATen/ops/eq.h");
  emitter.assign(
      0,
      text("at::where(", emitter.in(index), ".eq(", emitter.in(1), "), ", emitter.in(0), ".div(", winners, "), 0.0)"),
      "ATen/ops/where.h");
}

Inferred infer_extremum_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, node.input_count()));
  const int64_t index = node.attributes().get_int("index", -1);
  if (index < 0 || static_cast<size_t>(index) + 2 >= node.input_count()) return bad_model(node, "has a bad index");
  return infer_gradient(node);
}

// --- entries ---

Work ten_flops(const NodeView& node, Samples samples) { return function_of_output(node, samples, 10); }
/// Each of the additional inputs but the last needs a temporary for the partial sum.
Work flop_per_input(const NodeView& node, Samples samples) {
  const auto inputs = static_cast<double>(node.input_count());
  Work work = per_output_element(node, samples, inputs);
  work.scratch = std::max(inputs - (node.node().op == "Mean" ? 1 : 2), 0.0) * bytes_of(node.output(0), samples);
  return work;
}

/// The shapes that broadcasting has to handle: equal, weight against activation, in both directions, scalar.
std::vector<Example> broadcast_examples(ExampleInput (*fill)(const ExampleShape&)) {
  return {{.inputs = {fill({kB, 2, 3}), fill({kB, 2, 3})}},
          {.inputs = {fill({kB, 2, 3}), weight(fill({3}))}},
          {.inputs = {weight(fill({})), fill({kB, 2, 3})}},
          {.inputs = {fill({2, kB, 1}), weight(fill({2, 1, 3}))}}};
}

ExampleInput small_integers(const ExampleShape& dims) { return integers(dims, 1, 6); }
ExampleInput signed_integers(const ExampleShape& dims) { return integers(dims, -3, 4); }

std::vector<Example> with_integers(std::vector<Example> examples) {
  examples.push_back({.inputs = {integers({kB, 4}, -9, 10), small_integers({kB, 4})}});
  return examples;
}

std::vector<Example> variadic_examples() {
  return {{.inputs = {distinct({kB, 3})}},
          {.inputs = {distinct({kB, 3}), distinct({kB, 3})}},
          {.inputs = {distinct({kB, 2, 3}), weight(normal({2, 1})), weight(normal({}))}}};
}

std::vector<Example> gradient_examples(size_t inputs) {
  return {{.inputs = std::vector<ExampleInput>(inputs, positive({kB, 3}))}};
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<OpDef> arithmetic_rows() {
  return {
      {.name = "Add",
       .adds_bias = true,
       .infer = infer_arithmetic,
       .work = one_flop_per_element,
       .gradient = add_gradient,
       .emit = emit_as<"at::add($0, $1)", "ATen/ops/add.h">,
       .emit_in_place = emit_as<"$0.add_($1)", "ATen/core/Tensor.h">,
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .sample_sum = as_terms,
       .examples = with_integers(broadcast_examples(normal))},
      {.name = "Sub",
       .infer = infer_arithmetic,
       .work = one_flop_per_element,
       .gradient = sub_gradient,
       .emit = emit_as<"at::sub($0, $1)", "ATen/ops/sub.h">,
       .emit_in_place = emit_as<"$0.sub_($1)", "ATen/core/Tensor.h">,
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .sample_sum = as_terms,
       .examples = with_integers(broadcast_examples(normal))},
      {.name = "Mul",
       .factor_of = [](size_t, double number) { return std::optional(number); },
       .infer = infer_arithmetic,
       .work = one_flop_per_element,
       .gradient = mul_gradient,
       .emit = emit_as<"at::mul($0, $1)", "ATen/ops/mul.h">,
       .emit_in_place = emit_mul_in_place,
       .owns_outputs = always,
       .dependence = Dependence::kElement,
       .sample_sum = as_factor,
       .examples = with_integers(broadcast_examples(normal))},
      {.name = "Div",
       .factor_of = [](size_t i, double number) { return i == 1 ? std::optional(1 / number) : std::nullopt; },
       .infer = infer_arithmetic,
       .work = one_flop_per_element,
       .gradient = div_gradient,
       .emit = emit_div,
       .dependence = Dependence::kElement,
       .sample_sum = as_first_beside_constant,
       .examples = with_integers(broadcast_examples(positive))},
      {.name = "DivGradDivisor",
       .infer = infer_gradient,
       .work = ten_flops,
       .temporaries = 1,
       .emit = emit_as<"at::mul($0, $1.div($2)).neg_()", "ATen/ops/mul.h">,
       .examples = gradient_examples(3)},
      {.name = "Mod",
       .infer = infer_arithmetic,
       .work = one_flop_per_element,
       .gradient = mod_gradient,
       .emit = emit_mod,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {integers({kB, 4}, -9, 10), small_integers({kB, 4})}},
                    {.inputs = {distinct({kB, 4}), weight(positive({4}))}, .attributes = {{"fmod", int64_t{1}}}}}},
      {.name = "ModGradDivisor",
       .infer = infer_gradient,
       .work = one_flop_per_element,
       .temporaries = 1,
       .emit = emit_mod_gradient,
       .examples = gradient_examples(3)},
  };
}

std::vector<OpDef> variadic_rows() {
  return {
      {.name = "Max",
       .infer = infer_variadic,
       .work = flop_per_input,
       .gradient = extremum_gradient,
       .emit = emit_max,
       .dependence = Dependence::kElement,
       .examples = variadic_examples()},
      {.name = "Min",
       .infer = infer_variadic,
       .work = flop_per_input,
       .gradient = extremum_gradient,
       .emit = emit_min,
       .dependence = Dependence::kElement,
       .examples = variadic_examples()},
      {.name = "ExtremumGrad",
       .infer = infer_extremum_gradient,
       .work = flop_per_input,
       .temporaries = 2,
       .emit = emit_extremum_gradient,
       .examples = {{.inputs = std::vector<ExampleInput>(4, normal({kB, 3})), .attributes = {{"index", int64_t{1}}}}}},
      {.name = "Sum",
       .infer = infer_variadic,
       .work = flop_per_input,
       .gradient = add_gradient,
       .emit = emit_sum,
       .emit_in_place = emit_sum_in_place,
       .owns_outputs = has_several_inputs,
       .dependence = Dependence::kElement,
       .sample_sum = as_terms,
       .examples = variadic_examples()},
      {.name = "Mean",
       .infer = infer_variadic,
       .work = flop_per_input,
       .gradient = mean_gradient,
       .emit = emit_mean,
       .dependence = Dependence::kElement,
       .sample_sum = as_terms,
       .examples = variadic_examples()},
  };
}

OpDef boolean_row(std::string_view name, Inferred (*infer)(const NodeView&), void (*emit)(Emitter&),
                  std::vector<Example> examples) {
  return {.name = name,
          .infer = infer,
          .work = one_flop_per_element,
          .emit = emit,
          .dependence = Dependence::kElement,
          .examples = std::move(examples)};
}

std::vector<OpDef> boolean_rows() {
  const std::vector<Example> numbers = broadcast_examples(signed_integers);
  std::vector<Example> both = numbers;
  both.push_back({.inputs = {normal({kB, 3}), normal({kB, 1})}});
  const std::vector<Example> flags = broadcast_examples(booleans);
  return {
      boolean_row("Equal", infer_comparison, emit_as<"at::eq($0, $1)", "ATen/ops/eq.h">, both),
      boolean_row("Greater", infer_comparison, emit_as<"at::gt($0, $1)", "ATen/ops/gt.h">, both),
      boolean_row("GreaterOrEqual", infer_comparison, emit_as<"at::ge($0, $1)", "ATen/ops/ge.h">, both),
      boolean_row("Less", infer_comparison, emit_as<"at::lt($0, $1)", "ATen/ops/lt.h">, both),
      boolean_row("LessOrEqual", infer_comparison, emit_as<"at::le($0, $1)", "ATen/ops/le.h">, both),
      boolean_row("And", infer_logic, emit_as<"at::logical_and($0, $1)", "ATen/ops/logical_and.h">, flags),
      boolean_row("Or", infer_logic, emit_as<"at::logical_or($0, $1)", "ATen/ops/logical_or.h">, flags),
      boolean_row("Xor", infer_logic, emit_as<"at::logical_xor($0, $1)", "ATen/ops/logical_xor.h">, flags),
  };
}

std::vector<OpDef> where_rows() {
  const std::vector<Example> gradient_example = {{.inputs = {normal({kB, 3}), booleans({kB, 3})}}};
  return {
      {.name = "Where",
       .infer = infer_where,
       .work = one_flop_per_element,
       .gradient = where_gradient,
       .emit = emit_as<"at::where($0, $1, $2)", "ATen/ops/where.h">,
       .dependence = Dependence::kElement,
       .examples = {{.inputs = {booleans({kB, 2, 3}), normal({kB, 2, 3}), normal({kB, 2, 3})}},
                    {.inputs = {weight(booleans({2, 3})), normal({kB, 2, 3}), weight(normal({}))}},
                    {.inputs = {booleans({kB, 1, 3}), weight(normal({2, 1})), weight(normal({1}))}}}},
      {.name = "WhereGradTrue",
       .infer = infer_gradient,
       .work = one_flop_per_element,
       .emit = emit_as<"at::where($1, $0, 0.0)", "ATen/ops/where.h">,
       .examples = gradient_example},
      {.name = "WhereGradFalse",
       .infer = infer_gradient,
       .work = one_flop_per_element,
       .emit = emit_as<"at::where($1, 0.0, $0)", "ATen/ops/where.h">,
       .examples = gradient_example},
  };
}

}  // namespace

std::span<const OpDef> binary_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all;
    for (auto& part : {arithmetic_rows(), variadic_rows(), boolean_rows(), where_rows()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
