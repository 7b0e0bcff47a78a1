#include <algorithm>
#include <cmath>
#include <map>

#include "frontend/evaluate.h"

namespace graphpipe::frontend {
namespace {

using ir::DType;
using Inputs = std::span<const Known* const>;
using Unary = std::optional<Number> (*)(const Number&);
using Binary = std::optional<Number> (*)(const Number&, const Number&);

std::optional<Number> truth(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return Number::of_whole(*value ? 1 : 0);
}
std::optional<Number> negated_truth(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return Number::of_whole(*value ? 0 : 1);
}

template <double (*function)(double)>
std::optional<Number> real_function(const Number& a) {
  if (!a.floating || a.power != 0) return std::nullopt;
  return Number::of_real(function(a.real));
}
double reciprocal(double x) { return 1 / x; }

std::optional<Number> maximum(const Number& a, const Number& b) {
  const std::optional<bool> below = less(a, b);
  if (!below) return std::nullopt;
  return *below ? b : a;
}
std::optional<Number> minimum(const Number& a, const Number& b) {
  const std::optional<bool> below = less(a, b);
  if (!below) return std::nullopt;
  return *below ? a : b;
}
std::optional<Number> power(const Number& a, const Number& b) {
  if (!b.is_fixed()) return std::nullopt;
  if (a.floating && a.is_fixed()) return Number::of_real(std::pow(a.real, b.factor()));
  if (a.floating || b.floating || b.whole < 0 || b.whole > 64) return std::nullopt;
  std::optional<Number> result = Number::of_whole(1);
  for (int64_t i = 0; i < b.whole && result; ++i) result = multiply(*result, a);
  return result;
}

const std::map<std::string_view, Unary>& unary_functions() {
  static const std::map<std::string_view, Unary> kFunctions = {
      {"Neg", [](const Number& a) { return subtract(a.floating ? Number::of_real(0) : Number::of_whole(0), a); }},
      {"Abs", [](const Number& a) { return a.factor() < 0 ? subtract({a.floating}, a) : std::optional(a); }},
      {"Relu", [](const Number& a) { return a.factor() < 0 ? subtract(a, a) : std::optional(a); }},
      {"Not", [](const Number& a) { return truth(a.whole == 0); }},
      {"Sqrt", real_function<std::sqrt>},
      {"Exp", real_function<std::exp>},
      {"Log", real_function<std::log>},
      {"Sin", real_function<std::sin>},
      {"Cos", real_function<std::cos>},
      {"Floor", real_function<std::floor>},
      {"Ceil", real_function<std::ceil>},
      {"Reciprocal", real_function<reciprocal>},
  };
  return kFunctions;
}

const std::map<std::string_view, Binary>& binary_functions() {
  static const std::map<std::string_view, Binary> kFunctions = {
      {"Add", add},
      {"Sub", subtract},
      {"Mul", multiply},
      {"Div", divide},
      {"Max", maximum},
      {"Min", minimum},
      {"Pow", power},
      {"Equal", [](const Number& a, const Number& b) { return truth(equal(a, b)); }},
      {"Less", [](const Number& a, const Number& b) { return truth(less(a, b)); }},
      {"Greater", [](const Number& a, const Number& b) { return truth(less(b, a)); }},
      {"LessOrEqual", [](const Number& a, const Number& b) { return negated_truth(less(b, a)); }},
      {"GreaterOrEqual", [](const Number& a, const Number& b) { return negated_truth(less(a, b)); }},
      {"And", [](const Number& a, const Number& b) { return truth(a.whole != 0 && b.whole != 0); }},
      {"Or", [](const Number& a, const Number& b) { return truth(a.whole != 0 || b.whole != 0); }},
      {"Xor", [](const Number& a, const Number& b) { return truth((a.whole != 0) != (b.whole != 0)); }},
  };
  return kFunctions;
}

bool gives_truth(std::string_view op) {
  return op == "Equal" || op == "Less" || op == "Greater" || op == "LessOrEqual" || op == "GreaterOrEqual";
}

/// For each element of the broadcast shape the index into a tensor of shape `from`.
std::vector<size_t> broadcast_indices(const ir::Shape& to, const ir::Shape& from, size_t count) {
  std::vector<size_t> indices(count, 0);
  size_t inner_to = 1, inner_from = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto size_to = static_cast<size_t>(to[to.size() - 1 - i].factor);
    const auto size_from = static_cast<size_t>(from[from.size() - 1 - i].factor);
    if (size_from != 1)
      for (size_t k = 0; k < count; ++k) indices[k] += (k / inner_to % size_to) * inner_from;
    inner_to *= size_to;
    inner_from *= size_from;
  }
  return indices;
}

/// Applies `function(i, indices)` to every element of the inputs' broadcast shape.
template <typename Function>
std::optional<Known> over_broadcast(DType dtype, Inputs inputs, Function function) {
  ir::Shape shape;
  bool uniform = true;
  for (const Known* input : inputs) {
    std::optional<ir::Shape> wider = broadcast(shape, input->shape);
    if (!wider) return std::nullopt;
    shape = *wider;
    uniform = uniform && input->uniform;
  }
  Known result{.dtype = dtype, .shape = shape, .uniform = uniform, .elements = {}};
  const std::optional<size_t> count = uniform ? 1 : known_count(shape);
  if (!count) return std::nullopt;
  std::vector<std::vector<size_t>> indices;
  for (const Known* input : inputs)
    indices.push_back(input->uniform ? std::vector<size_t>(*count, 0) : broadcast_indices(shape, input->shape, *count));
  std::vector<Number> operands(inputs.size());
  for (size_t k = 0; k < *count; ++k) {
    for (size_t i = 0; i < inputs.size(); ++i) operands[i] = inputs[i]->element(indices[i][k]);
    std::optional<Number> element = function(operands);
    if (element) element = stored(dtype, *element);
    if (!element) return std::nullopt;
    result.elements.push_back(*element);
  }
  return result;
}

std::optional<Number> cast_number(const Number& number, DType to) {
  if (ir::is_floating(to)) return Number::of_real(number.factor(), number.power);
  if (to == DType::kBool) return Number::of_whole(number.factor() != 0 ? 1 : 0);
  if (!number.floating) return number;
  // Out of range is undefined behaviour in C++ and in ONNX.
  if (!(std::fabs(number.real) < 9e18)) return std::nullopt;
  // The fractional part of a multiple of the batch depends on the batch.
  if (number.power != 0 && std::trunc(number.real) != number.real) return std::nullopt;
  return Number::of_whole(static_cast<int64_t>(number.real), number.power);
}

std::optional<Known> cast(const Known& input, DType to) {
  const Known* only[] = {&input};
  return over_broadcast(to, only, [to](const std::vector<Number>& n) { return cast_number(n[0], to); });
}

std::optional<DType> cast_target(const OnnxNode& node, Inputs inputs) {
  if (node.op == "CastLike" && inputs.size() == 2 && inputs[1] != nullptr) return inputs[1]->dtype;
  const Attribute* to = node.find("to");
  return to == nullptr ? std::nullopt : dtype_of_onnx(static_cast<int>(to->i));
}

}  // namespace

bool have_one_type(Inputs inputs) {
  return std::ranges::all_of(inputs, [&](const Known* input) { return input->dtype == inputs[0]->dtype; });
}

std::optional<Known> evaluate_elementwise(const OnnxNode& node, Inputs inputs) {
  if (std::any_of(inputs.begin(), inputs.end(), [](const Known* input) { return input == nullptr; }) || inputs.empty())
    return std::nullopt;
  const DType dtype = inputs[0]->dtype;
  if (node.op == "Identity") return *inputs[0];
  if (node.op == "Cast" || node.op == "CastLike") {
    const std::optional<DType> to = cast_target(node, inputs);
    return to && wire::is_computed_in(*to) ? cast(*inputs[0], *to) : std::nullopt;
  }
  if (node.op == "Where" && inputs.size() == 3) {
    if (!have_one_type(inputs.subspan(1))) return std::nullopt;
    return over_broadcast(inputs[1]->dtype, inputs,
                          [](const std::vector<Number>& n) { return std::optional(n[0].whole != 0 ? n[1] : n[2]); });
  }
  // The exponent of Pow may have a different type.
  if (node.op != "Pow" && !have_one_type(inputs)) return std::nullopt;
  if (node.op == "Mod" && inputs.size() == 2) {
    const Attribute* fmod = node.find("fmod");
    const bool c_sign = fmod != nullptr && fmod->i != 0;
    return over_broadcast(dtype, inputs, [c_sign](const std::vector<Number>& n) { return modulo(n[0], n[1], c_sign); });
  }
  if (const auto found = unary_functions().find(node.op); found != unary_functions().end() && inputs.size() == 1)
    return over_broadcast(dtype, inputs, [&](const std::vector<Number>& n) { return found->second(n[0]); });
  if (const auto found = binary_functions().find(node.op); found != binary_functions().end()) {
    const bool variadic = node.op == "Max" || node.op == "Min";
    if (inputs.size() != 2 && !variadic) return std::nullopt;
    return over_broadcast(gives_truth(node.op) ? DType::kBool : dtype, inputs, [&](const std::vector<Number>& n) {
      std::optional<Number> result = n[0];
      for (size_t i = 1; i < n.size() && result; ++i) result = found->second(*result, n[i]);
      return result;
    });
  }
  return std::nullopt;
}

std::optional<Known> evaluate(const OnnxNode& node, Inputs inputs) {
  if (!node.domain.empty() || node.outputs.size() != 1) return std::nullopt;
  std::optional<Known> result = evaluate_elementwise(node, inputs);
  if (!result) result = evaluate_movement(node, inputs);
  // A tensor with one element is uniform.
  if (result && known_count(result->shape) == 1) result->uniform = true;
  return result;
}

}  // namespace graphpipe::frontend
