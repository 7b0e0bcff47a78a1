// Element-wise ops of one input. Each line of the table is a forward op and, if there is a derivative, its gradient op
// <Name>Grad(gradient, saved), where `saved` is the input or the output: the output if the next op is likely to keep it
// too, so that the step holds one tensor instead of two.
//
// Patterns: $0, $1 are the inputs, <alpha> is an attribute (its default stands in the attributes column).

#include <algorithm>
#include <vector>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"
#include "ops/sample_sum.h"

namespace graphpipe::ops {
namespace {

enum class Saved : uint8_t { kInput, kOutput };
using Fill = ExampleInput::Fill;

struct Default {
  std::string_view name;
  double value;
};

struct UnaryRow {
  std::string_view name;
  std::string_view pattern;
  std::string_view header;
  double flops = 1;
  /// Empty if the op has no derivative.
  std::string_view gradient_name = {};
  Saved saved = Saved::kInput;
  std::string_view gradient_pattern = {};
  std::string_view gradient_header = {};
  Fill fill = Fill::kNormal;
  std::vector<Default> attributes = {};
  /// The same in the memory of $0.
  std::string_view in_place = {};
  std::string_view gradient_in_place = {};
};

constexpr std::string_view kDiv = "ATen/ops/div.h";
constexpr std::string_view kElu = "ATen/ops/elu.h";
constexpr std::string_view kRelu = "runtime/kernels/relu.h";
constexpr std::string_view kEluBackward = "ATen/ops/elu_backward.h";

// Transcendental functions are counted as 10 flops, a usual number for vectorised polynomial kernels.
// NOLINTNEXTLINE(readability-function-size): a table
const std::vector<UnaryRow>& table() {
  using enum Saved;
  static const std::vector<UnaryRow> rows = {
      {"Exp", "at::exp($0)", "ATen/ops/exp.h", 10, "ExpGrad", kOutput, "at::mul($0, $1)", kMulHeader},
      // A gradient of zero stays zero where the logarithm is -infinity: exporters write binary cross entropy as
      // logarithms that are cut off there. Elsewhere 0 / NaN tells of the NaN.
      {"Log", "at::log($0)", "ATen/ops/log.h", 10, "LogGrad", kInput,
       "at::div($0, $1).masked_fill_($0.eq(0).logical_and_($1.eq(0)), 0)", kDiv, Fill::kPositive},
      {"Sqrt", "at::sqrt($0)", "ATen/ops/sqrt.h", 4, "SqrtGrad", kOutput, "at::div($0, $1).mul_(0.5)", kDiv,
       Fill::kPositive},
      {"Reciprocal", "at::reciprocal($0)", "ATen/ops/reciprocal.h", 4, "ReciprocalGrad", kOutput,
       "$1.square().neg_().mul_($0)", kTensorHeader, Fill::kPositive},
      {"Sin", "at::sin($0)", "ATen/ops/sin.h", 10, "SinGrad", kInput, "$1.cos().mul_($0)", kTensorHeader},
      {"Cos", "at::cos($0)", "ATen/ops/cos.h", 10, "CosGrad", kInput, "$1.sin().neg_().mul_($0)", kTensorHeader},
      {"Tan", "at::tan($0)", "ATen/ops/tan.h", 10, "TanGrad", kOutput, "$1.square().add_(1.0).mul_($0)", kTensorHeader,
       Fill::kUniform01},
      {"Sinh", "at::sinh($0)", "ATen/ops/sinh.h", 10, "SinhGrad", kInput, "$1.cosh().mul_($0)", kTensorHeader},
      {"Cosh", "at::cosh($0)", "ATen/ops/cosh.h", 10, "CoshGrad", kInput, "$1.sinh().mul_($0)", kTensorHeader},
      {"Asin", "at::asin($0)", "ATen/ops/asin.h", 10, "AsinGrad", kInput,
       "$1.square().neg_().add_(1.0).rsqrt_().mul_($0)", kTensorHeader, Fill::kUniform01},
      {"Acos", "at::acos($0)", "ATen/ops/acos.h", 10, "AcosGrad", kInput,
       "$1.square().neg_().add_(1.0).rsqrt_().neg_().mul_($0)", kTensorHeader, Fill::kUniform01},
      {"Atan", "at::atan($0)", "ATen/ops/atan.h", 10, "AtanGrad", kInput, "at::div($0, $1.square().add_(1.0))", kDiv},
      {"Asinh", "at::asinh($0)", "ATen/ops/asinh.h", 10, "AsinhGrad", kInput, "$1.square().add_(1.0).rsqrt_().mul_($0)",
       kTensorHeader},
      // Its example draws from [1.5, 3): see examples_of.
      {"Acosh", "at::acosh($0)", "ATen/ops/acosh.h", 10, "AcoshGrad", kInput, "$1.square().sub_(1.0).rsqrt_().mul_($0)",
       kTensorHeader, Fill::kPositive},
      {"Atanh", "at::atanh($0)", "ATen/ops/atanh.h", 10, "AtanhGrad", kInput,
       "at::div($0, $1.square().neg_().add_(1.0))", kDiv, Fill::kUniform01},
      // 2 / sqrt(pi)
      {"Erf", "at::erf($0)", "ATen/ops/erf.h", 10, "ErfGrad", kInput,
       "$1.square().neg_().exp_().mul_(1.1283791670955126).mul_($0)", kTensorHeader},
      {"Tanh",
       "at::tanh($0)",
       "ATen/ops/tanh.h",
       10,
       "TanhGrad",
       kOutput,
       "at::tanh_backward($0, $1)",
       "ATen/ops/tanh_backward.h",
       Fill::kNormal,
       {},
       "at::tanh_($0)",
       "at::tanh_backward_out($0, $0, $1)"},
      {"Sigmoid",
       "at::sigmoid($0)",
       "ATen/ops/sigmoid.h",
       10,
       "SigmoidGrad",
       kOutput,
       "at::sigmoid_backward($0, $1)",
       "ATen/ops/sigmoid_backward.h",
       Fill::kNormal,
       {},
       "at::sigmoid_($0)",
       "at::sigmoid_backward_out($0, $0, $1)"},
      {"Silu",
       "at::silu($0)",
       "ATen/ops/silu.h",
       11,
       "SiluGrad",
       kInput,
       "at::silu_backward($0, $1)",
       "ATen/ops/silu_backward.h",
       Fill::kNormal,
       {},
       "at::silu_($0)",
       "at::silu_backward_out($0, $0, $1)"},
      {"Softplus", "at::softplus($0)", "ATen/ops/softplus.h", 20, "SoftplusGrad", kInput,
       "at::softplus_backward($0, $1, 1.0, 20.0)", "ATen/ops/softplus_backward.h"},
      {"Softsign", "at::div($0, $0.abs().add_(1.0))", kDiv, 3, "SoftsignGrad", kInput,
       "at::div($0, $1.abs().add_(1.0).square_())", kDiv},
      {"Mish", "at::mish($0)", "ATen/ops/mish.h", 30, "MishGrad", kInput, "at::mish_backward($0, $1)",
       "ATen/ops/mish_backward.h"},
      {"Relu",
       "graphpipe::runtime::relu($0)",
       kRelu,
       1,
       "ReluGrad",
       kOutput,
       "graphpipe::runtime::relu_gradient($0, $1)",
       kRelu,
       Fill::kPermutation,
       {},
       "graphpipe::runtime::relu_($0)",
       "graphpipe::runtime::relu_gradient_($0, $1)"},
      {"LeakyRelu",
       "at::leaky_relu($0, <alpha>)",
       "ATen/ops/leaky_relu.h",
       2,
       "LeakyReluGrad",
       kInput,
       "at::leaky_relu_backward($0, $1, <alpha>, false)",
       "ATen/ops/leaky_relu_backward.h",
       Fill::kPermutation,
       {{"alpha", 0.01}}},
      {"Elu",
       "at::elu($0, <alpha>)",
       kElu,
       10,
       "EluGrad",
       kInput,
       "at::elu_backward($0, <alpha>, 1.0, 1.0, false, $1)",
       kEluBackward,
       Fill::kPermutation,
       {{"alpha", 1.0}}},
      {"Selu",
       "at::elu($0, <alpha>, <gamma>)",
       kElu,
       10,
       "SeluGrad",
       kInput,
       "at::elu_backward($0, <alpha>, <gamma>, 1.0, false, $1)",
       kEluBackward,
       Fill::kPermutation,
       {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}}},
      {"Celu",
       "at::celu($0, <alpha>)",
       "ATen/ops/celu.h",
       10,
       "CeluGrad",
       kInput,
       "at::elu_backward($0, <alpha>, 1.0, 1.0 / <alpha>, false, $1)",
       kEluBackward,
       Fill::kPermutation,
       {{"alpha", 1.0}}},
      {"HardSigmoid",
       "$0.mul(<alpha>).add_(<beta>).clamp_(0.0, 1.0)",
       kTensorHeader,
       4,
       "HardSigmoidGrad",
       kOutput,
       "at::hardtanh_backward($0, $1, 0.0, 1.0).mul_(<alpha>)",
       "ATen/ops/hardtanh_backward.h",
       Fill::kPermutation,
       {{"alpha", 0.2}, {"beta", 0.5}}},
      {"HardSwish", "at::hardswish($0)", "ATen/ops/hardswish.h", 5, "HardSwishGrad", kInput,
       "at::hardswish_backward($0, $1)", "ATen/ops/hardswish_backward.h", Fill::kPermutation},
      {"Abs", "at::abs($0)", "ATen/ops/abs.h", 1, "AbsGrad", kInput, "$1.sign().mul_($0)", kTensorHeader,
       Fill::kPermutation},
      {"Neg", "at::neg($0)", "ATen/ops/neg.h"},
      {"Floor", "at::floor($0)", "ATen/ops/floor.h", 1, {}, {}, {}, {}, Fill::kPermutation},
      {"Ceil", "at::ceil($0)", "ATen/ops/ceil.h", 1, {}, {}, {}, {}, Fill::kPermutation},
      {"Round", "at::round($0)", "ATen/ops/round.h", 1, {}, {}, {}, {}, Fill::kPermutation},
      {"Sign", "at::sign($0)", "ATen/ops/sign.h", 1, {}, {}, {}, {}, Fill::kPermutation},
  };
  return rows;
}

const UnaryRow& unary_row_of(const ir::Node& node) {
  const auto row = std::ranges::find_if(
      table(), [&](const UnaryRow& each) { return each.name == node.op || each.gradient_name == node.op; });
  GP_CHECK(row != table().end());
  return *row;
}

std::string with_attributes(std::string pattern, const UnaryRow& row, const ir::Attributes& attributes) {
  for (const Default& each : row.attributes) {
    const std::string name = text("<", each.name, ">");
    const std::string value = number(attributes.get_double(each.name, each.value));
    for (size_t at = pattern.find(name); at != std::string::npos; at = pattern.find(name)) {
      pattern.replace(at, name.size(), value);
    }
  }
  return pattern;
}

Work unary_work(const NodeView& node, Samples samples) {
  constexpr double kFewFlops = 2;
  const double flops = unary_row_of(node.node()).flops;
  return flops > kFewFlops ? function_of_output(node, samples, flops) : per_output_element(node, samples, flops);
}

void emit_unary(Emitter& emitter) {
  const UnaryRow& row = unary_row_of(emitter.node().node());
  assign_pattern(emitter, with_attributes(std::string(row.pattern), row, emitter.node().attributes()), row.header);
}

void emit_unary_in_place(Emitter& emitter) {
  const UnaryRow& row = unary_row_of(emitter.node().node());
  assign_pattern(emitter, row.in_place, row.header);
}

Status unary_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const UnaryRow& row = unary_row_of(builder.forward().node());
  const ir::ValueId saved = row.saved == Saved::kInput ? builder.input(0) : builder.output(0);
  builder.set_input_gradient(
      0, builder.add_one(0, row.gradient_name, {builder.output_gradient(0), saved}, builder.forward().attributes()));
  return Ok{};
}

void emit_unary_gradient(Emitter& emitter) {
  const UnaryRow& row = unary_row_of(emitter.node().node());
  assign_pattern(emitter, with_attributes(std::string(row.gradient_pattern), row, emitter.node().attributes()),
                 row.gradient_header);
}

void emit_unary_gradient_in_place(Emitter& emitter) {
  const UnaryRow& row = unary_row_of(emitter.node().node());
  assign_pattern(emitter, row.gradient_in_place, row.gradient_header);
}

bool takes_integers(std::string_view name) { return name == "Abs" || name == "Neg" || name == "Sign"; }

Inferred infer_unary(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  if (!takes_integers(node.node().op)) GP_TRY_VOID(expect_floating(node, {0}));
  // Celu divides by alpha.
  if (node.node().op == "Celu" && node.attributes().get_double("alpha", 1.0) == 0.0) {
    return bad_model(node, "has alpha 0");
  }
  return one_output(node, node.input(0).type);
}

Inferred infer_unary_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  GP_TRY_VOID(expect_same_type(node, 0, 1));
  return one_output(node, node.input(0).type);
}

std::vector<Example> examples_of(const UnaryRow& row) {
  ExampleInput input = drawn(row.fill, {kB, 3, 4});
  if (row.name == "Acosh") input.low = 1;
  std::vector<Example> examples = {{.inputs = {input}}};
  if (row.attributes.empty()) return examples;
  Example other = {.inputs = {input}};
  for (const Default& each : row.attributes) other.attributes.set(each.name, each.value * 0.75);
  examples.push_back(other);
  return examples;
}

Status neg_gradient(GradientBuilder& builder) {
  if (builder.wants(0)) builder.set_input_gradient(0, builder.add_one(0, "Neg", {builder.output_gradient(0)}));
  return Ok{};
}

// Functions with a steep slope somewhere amplify the rounding errors of 16 bits.
Precision precision_of(std::string_view name) {
  constexpr std::string_view kSteep[] = {"Exp",  "Log",  "Sqrt", "Reciprocal", "Sin",   "Cos",   "Tan",   "Sinh",
                                         "Cosh", "Asin", "Acos", "Atan",       "Asinh", "Acosh", "Atanh", "Softplus"};
  return std::ranges::find(kSteep, name) == std::end(kSteep) ? Precision::kAsInputs : Precision::kFloat32;
}

OpDef forward_row(const UnaryRow& row) {
  OpDef def{.name = row.name,
            .precision = precision_of(row.name),
            .infer = infer_unary,
            .work = unary_work,
            .temporaries = temporaries_of(row.pattern),
            .emit = emit_unary,
            .emit_in_place = row.in_place.empty() ? nullptr : emit_unary_in_place,
            .owns_outputs = always,
            .dependence = Dependence::kElement};
  if (!row.gradient_name.empty()) def.gradient = unary_gradient;
  if (row.name == "Neg") {
    def.gradient = neg_gradient;
    def.sample_sum = as_first_input;
  }
  def.examples = examples_of(row);
  return def;
}

OpDef gradient_row(const UnaryRow& row) {
  OpDef def{.name = row.gradient_name,
            .infer = infer_unary_gradient,
            .work = unary_work,
            .temporaries = temporaries_of(row.gradient_pattern),
            .emit = emit_unary_gradient,
            .emit_in_place = row.gradient_in_place.empty() ? nullptr : emit_unary_gradient_in_place,
            .owns_outputs = always};
  for (Example example : examples_of(row)) {
    example.inputs.insert(example.inputs.begin(), normal({kB, 3, 4}));
    def.examples.push_back(std::move(example));
  }
  return def;
}

}  // namespace

std::span<const OpDef> unary_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> made;
    for (const UnaryRow& row : table()) {
      made.push_back(forward_row(row));
      if (!row.gradient_name.empty()) made.push_back(gradient_row(row));
    }
    return made;
  }();
  return rows;
}

}  // namespace graphpipe::ops
