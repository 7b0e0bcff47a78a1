// Einsum of one or two operands, without ellipsis, in which no operand repeats a label and every label of an operand is
// in the result or in the other operand. That covers permutations and all (batched) products; its gradients have the
// same form. The frontend reduces all other equations to it (frontend/lower_einsum.cpp).

#include <algorithm>
#include <map>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

/// Letters only, one per axis: safe to print.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool repeats(std::string labels) {
  std::ranges::sort(labels);
  return std::ranges::adjacent_find(labels) != labels.end();
}

// The result of a text without "->": labels that occur once, in alphabetical order.
std::string implicit_result(const std::vector<std::string>& operands) {
  std::map<char, int> counts;
  for (const std::string& operand : operands) {
    for (char label : operand) ++counts[label];
  }
  std::string result;
  for (const auto& [label, count] : counts) {
    if (count == 1) result += label;
  }
  return result;
}

std::optional<Equation> parse(std::string_view equation) {
  Equation parsed;
  parsed.operands.emplace_back();
  bool has_result = false;
  for (size_t i = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    if (c == ' ') continue;
    if (is_letter(c)) {
      (has_result ? parsed.result : parsed.operands.back()) += c;
    } else if (c == ',' && !has_result) {
      parsed.operands.emplace_back();
    } else if (c == '-' && i + 1 < equation.size() && equation[i + 1] == '>' && !has_result) {
      has_result = true;
      ++i;
    } else {
      return std::nullopt;
    }
  }
  if (!has_result) parsed.result = implicit_result(parsed.operands);
  return parsed;
}

bool is_covered(const Equation& equation) {
  if (repeats(equation.result)) return false;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    std::string others = equation.result;
    for (size_t k = 0; k < equation.operands.size(); ++k) {
      if (k != i) others += equation.operands[k];
    }
    const auto is_elsewhere = [&](char label) { return others.find(label) != std::string::npos; };
    if (repeats(equation.operands[i]) || !std::ranges::all_of(equation.operands[i], is_elsewhere)) return false;
  }
  return true;
}

Result<Equation> equation_of(const NodeView& node) {
  const std::optional<Equation> equation = parse(node.attributes().get_string("equation", ""));
  if (!equation || equation->operands.size() > 2 || !is_covered(*equation)) {
    return problem_at(node, Code::kUnsupportedOp, "has an equation beyond permutations and products of two operands",
                      "write it as products of two operands, sums and transposes");
  }
  if (equation->operands.size() != node.input_count()) return bad_model(node, "has more or fewer operands than inputs");
  return *equation;
}

Result<std::map<char, ir::Dim>> label_dims(const NodeView& node, const Equation& equation) {
  std::map<char, ir::Dim> dims;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const ir::Shape& shape = node.input(i).type.shape;
    const std::string& labels = equation.operands[i];
    if (labels.size() != shape.size())
      return bad_model(node, text("has ", labels.size(), " labels for ", shape_text(shape)));
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto [place, added] = dims.emplace(labels[axis], shape[axis]);
      if (!added && place->second != shape[axis]) {
        return bad_model(node, text("gives the label ", labels[axis], " the sizes ", dim_text(place->second), " and ",
                                    dim_text(shape[axis])));
      }
    }
  }
  return dims;
}

Inferred infer_einsum(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 2));
  GP_TRY_VOID(expect_floating(node, {0, 1}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  GP_TRY(const Equation equation, equation_of(node));
  GP_TRY(const auto dims, label_dims(node, equation));
  Mixing mixing = Mixing::kNone;
  for (const auto& [label, dim] : dims) {
    if (!dim.is_fixed() && equation.result.find(label) == std::string::npos) mixing = Mixing::kMixes;
  }
  ir::Shape shape;
  for (char label : equation.result) {
    const auto place = dims.find(label);
    if (place == dims.end()) return bad_model(node, text("has a result label that no operand has: ", label));
    shape.push_back(place->second);
  }
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

// Two flops for each combination of labels; a permutation only moves data.
Work einsum_work(const NodeView& node, Samples samples) {
  if (node.input_count() == 1) return copy_work(node, samples);
  double combinations = 2;
  const Equation equation = equation_of(node).value();
  const std::map<char, ir::Dim> dims = label_dims(node, equation).value();
  for (const auto& [label, dim] : dims) {
    combinations *= static_cast<double>(dim.at(samples));
  }
  return {.flops = combinations, .bytes = bytes_touched(node, samples)};
}

std::string equation_text(const Equation& equation) {
  std::string result = equation.operands.front();
  for (size_t i = 1; i < equation.operands.size(); ++i) result += "," + equation.operands[i];
  return result + "->" + equation.result;
}

void emit_einsum(Emitter& emitter) {
  const Equation equation = equation_of(emitter.node()).value();
  const std::string second = equation.operands.size() == 2 ? ", " + emitter.in(1) : "";
  emitter.assign(0, text("at::einsum(\"", equation_text(equation), "\", {", emitter.in(0), second, "})"),
                 "ATen/ops/einsum.h");
}

Status einsum_gradient(GradientBuilder& builder) {
  GP_TRY(const Equation equation, equation_of(builder.forward()));
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    if (!builder.wants(i)) continue;
    Equation turned{.operands = {equation.result}, .result = equation.operands[i]};
    std::vector<ir::ValueId> inputs = {builder.output_gradient(0)};
    if (equation.operands.size() == 2) {
      turned.operands.push_back(equation.operands[1 - i]);
      inputs.push_back(builder.input(1 - i));
    }
    builder.set_input_gradient(i,
                               builder.add_one(i, "Einsum", std::move(inputs), {{"equation", equation_text(turned)}}));
  }
  return Ok{};
}

ir::Attributes equation(std::string labels) { return {{"equation", std::move(labels)}}; }

}  // namespace

std::span<const OpDef> einsum_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "Einsum",
       .precision = Precision::kLower,
       .infer = infer_einsum,
       .work = einsum_work,
       .temporaries = 1.75,
       .gradient = einsum_gradient,
       .emit = emit_einsum,
       .features = FeatureAxis::kLast,
       .roles = {ParameterRole::kWeight, ParameterRole::kWeight},
       .examples = {{.inputs = {normal({kB, 2, 3}), normal({kB, 4, 3})}, .attributes = equation("bqd,bkd->bqk")},
                    {.inputs = {normal({kB, 3}), weight(normal({3, 4}))}, .attributes = equation("bi, ij")},
                    {.inputs = {normal({kB, 3}), normal({kB, 4})}, .attributes = equation("bi,bj->ij")},
                    {.inputs = {normal({kB, 3, 2})}, .attributes = equation("abc->cab")}}}};
  return rows;
}

}  // namespace graphpipe::ops
