#include "passes/fuse_layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "passes/expression.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Shape;
using ir::ValueId;

/// Recognises a layer in the expression that ends in the node being rebuilt. Its operands have been rebuilt already.
class Fusion {
 public:
  Fusion(const Rebuilding& step, const Expressions& parts) : step_(step), parts_(parts) {}

  Result<Replacement> run();

 private:
  Result<Replacement> layer_norm();
  Result<Replacement> rms_norm();
  Result<Replacement> gelu();
  Result<Replacement> silu();
  Result<Replacement> rotary();
  std::optional<ValueId> turned_argument(ValueId value) const;
  std::optional<ValueId> erf_argument(ValueId value) const;
  std::optional<ValueId> tanh_argument(ValueId value) const;
  bool is_row_weight(ValueId value, ValueId x) const;
  bool is_result(ValueId x) const { return parts_.value(x).type == step_.outputs[0].type; }
  Result<Replacement> make(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) {
    GP_TRY(const ValueId fused, append_like(step_.made, step_.node, op, std::move(inputs), std::move(attributes)));
    return Replacement({fused});
  }
  int64_t last_axis(ValueId x) const { return static_cast<int64_t>(parts_.shape(x).size()) - 1; }

  const Rebuilding& step_;
  const Expressions& parts_;
};

/// Whether the value is a scale or bias of the rows of x that depends on weights alone.
bool Fusion::is_row_weight(ValueId value, ValueId x) const {
  const ir::Value& weight = parts_.value(value);
  return weight.batch == ir::BatchKind::kNone && !parts_.shape(x).empty() &&
         weight.type.dtype == parts_.value(x).type.dtype && weight.type.shape == Shape{parts_.shape(x).back()};
}

/// RMSNormalization(x - mean, scale) + bias: rms_norm() has already fused what comes before the bias.
Result<Replacement> Fusion::layer_norm() {
  for (size_t i = 0; i < 2; ++i) {
    const Node* scaled = parts_.made_by(step_.node.inputs[1 - i], "RMSNormalization");
    const Node* centred = scaled == nullptr ? nullptr : parts_.made_by(scaled->inputs[0], "Sub");
    if (centred == nullptr) continue;
    const ValueId bias = step_.node.inputs[i], x = centred->inputs[0];
    if (parts_.row_mean(centred->inputs[1]) != x || !is_result(x) || !is_row_weight(bias, x)) continue;
    // The model's own RMSNormalization may be over more axes than the last.
    if (!is_row_weight(scaled->inputs[1], x)) continue;
    const double epsilon = scaled->attributes.get_double("epsilon", 1e-5);
    return make("LayerNormalization", {x, scaled->inputs[1], bias}, {{"axis", last_axis(x)}, {"epsilon", epsilon}});
  }
  return Replacement();
}

/// Mul(x / sqrt(mean(x^2) + eps), scale)
Result<Replacement> Fusion::rms_norm() {
  for (size_t i = 0; i < 2; ++i)
    for (const auto& [x, root] : parts_.quotients(step_.node.inputs[1 - i])) {
      const ValueId scale = step_.node.inputs[i];
      const auto inside = parts_.square_root(root);
      const auto sum = inside ? parts_.with_constant(*inside, "Add") : std::nullopt;
      const auto squares = sum ? parts_.row_mean(sum->first) : std::nullopt;
      if (!squares || parts_.square(*squares) != x || !is_result(x) || !is_row_weight(scale, x) || !(sum->second >= 0))
        continue;
      return make("RMSNormalization", {x, scale}, {{"axis", last_axis(x)}, {"epsilon", sum->second}});
    }
  return Replacement();
}

/// x if the value is 1 + erf(x / sqrt 2).
std::optional<ValueId> Fusion::erf_argument(ValueId value) const {
  const auto sum = parts_.with_constant(value, "Add");
  const Node* erf = sum ? parts_.made_by(sum->first, "Erf") : nullptr;
  if (erf == nullptr || sum->second != 1) return std::nullopt;
  const ValueId argument = erf->inputs[0];
  if (const Node* quotient = parts_.made_by(argument, "Div");
      quotient != nullptr && parts_.is_constant(quotient->inputs[1], std::numbers::sqrt2))
    return quotient->inputs[0];
  const auto product = parts_.with_constant(argument, "Mul");
  const bool inverse = product && std::abs(product->second - 1 / std::numbers::sqrt2) < 1e-6;
  return inverse ? std::optional(product->first) : std::nullopt;
}

/// x if the value is 1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)).
std::optional<ValueId> Fusion::tanh_argument(ValueId value) const {
  const auto sum = parts_.with_constant(value, "Add");
  const Node* tanh = sum ? parts_.made_by(sum->first, "Tanh") : nullptr;
  if (tanh == nullptr || sum->second != 1) return std::nullopt;
  const auto scaled = parts_.with_constant(tanh->inputs[0], "Mul");
  const double wanted = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Node* inner = scaled ? parts_.made_by(scaled->first, "Add") : nullptr;
  if (inner == nullptr || std::abs(scaled->second - wanted) > 1e-6) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = inner->inputs[i];
    const auto cubic = parts_.with_constant(inner->inputs[1 - i], "Mul");
    if (!cubic || std::abs(cubic->second - 0.044715) > 1e-7) continue;
    const Node* power = parts_.made_by(cubic->first, "Pow");
    if (power != nullptr && power->inputs[0] == x && parts_.is_constant(power->inputs[1], 3)) return x;
    const std::vector<ValueId> factors = parts_.factors(cubic->first);
    if (factors.size() == 3 && std::count(factors.begin(), factors.end(), x) == 3) return x;
  }
  return std::nullopt;
}

/// The product of x, 1/2 and 1 + erf(..) or 1 + tanh(..), in any order and nesting.
Result<Replacement> Fusion::gelu() {
  std::vector<ValueId> factors = parts_.factors(step_.node.inputs[0]);
  for (const ValueId other : parts_.factors(step_.node.inputs[1])) factors.push_back(other);
  if (factors.size() != 3) return Replacement();
  for (const ValueId sum : factors)
    for (const bool is_erf : {true, false}) {
      const std::optional<ValueId> x = is_erf ? erf_argument(sum) : tanh_argument(sum);
      if (!x || !is_result(*x)) continue;
      const bool has_x = std::find(factors.begin(), factors.end(), *x) != factors.end();
      const bool has_half =
          std::any_of(factors.begin(), factors.end(), [&](ValueId factor) { return parts_.is_constant(factor, 0.5); });
      if (!has_x || !has_half) continue;
      return make("Gelu", {*x}, {{"approximate", std::string(is_erf ? "none" : "tanh")}});
    }
  return Replacement();
}

/// x * sigmoid(x)
Result<Replacement> Fusion::silu() {
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = step_.node.inputs[i];
    const Node* sigmoid = parts_.made_by(step_.node.inputs[1 - i], "Sigmoid");
    if (sigmoid != nullptr && sigmoid->inputs[0] == x && is_result(x)) return make("Silu", {x}, {});
  }
  return Replacement();
}

/// x if the value is [-second, first] with the halves of its last axis.
std::optional<ValueId> Fusion::turned_argument(ValueId value) const {
  const Node* joined = parts_.made_by(value, "Concat");
  const Node* contrary =
      joined != nullptr && joined->inputs.size() == 2 ? parts_.made_by(joined->inputs[0], "Neg") : nullptr;
  if (contrary == nullptr) return std::nullopt;
  const Node* split = parts_.made_by(joined->inputs[1], "Split");
  if (split == nullptr || split->outputs.size() != 2 || split->outputs[0] != joined->inputs[1] ||
      split->outputs[1] != contrary->inputs[0])
    return std::nullopt;
  const ValueId x = split->inputs[0];
  const auto is_last = [&](const Node& node) {
    const int64_t axis = node.attributes.get_int("axis", 0);
    return axis == last_axis(x) || axis == -1;
  };
  const bool are_halves = parts_.shape(split->outputs[0]) == parts_.shape(split->outputs[1]);
  return are_halves && is_last(*split) && is_last(*joined) ? std::optional(x) : std::nullopt;
}

/// x * cosine + [-second, first] * sine, the factors in any order.
Result<Replacement> Fusion::rotary() {
  for (size_t i = 0; i < 2; ++i) {
    const Node* across = parts_.made_by(step_.node.inputs[i], "Mul");
    const Node* along = parts_.made_by(step_.node.inputs[1 - i], "Mul");
    if (across == nullptr || along == nullptr) continue;
    for (size_t j = 0; j < 2; ++j) {
      const std::optional<ValueId> x = turned_argument(across->inputs[j]);
      if (!x || !is_result(*x)) continue;
      const ValueId sine = across->inputs[1 - j];
      const ValueId cosine = along->inputs[along->inputs[0] == *x ? 1 : 0];
      const bool has_x = along->inputs[0] == *x || along->inputs[1] == *x;
      const ir::TensorType& type = parts_.value(sine).type;
      const bool fits = type == parts_.value(cosine).type && type.dtype == parts_.value(*x).type.dtype &&
                        !type.shape.empty() && type.shape.back() == parts_.shape(*x).back();
      if (has_x && fits && !parts_.is_trained(sine) && !parts_.is_trained(cosine))
        return make("Rotary", {*x, cosine, sine}, {});
    }
  }
  return Replacement();
}

Result<Replacement> Fusion::run() {
  const std::string& op = step_.node.op;
  if (step_.outputs.size() != 1 || !ir::is_floating(step_.outputs[0].type.dtype)) return Replacement();
  if (op == "Add" && step_.node.inputs.size() == 2) {
    GP_TRY(Replacement norm, layer_norm());
    return norm ? std::move(norm) : rotary();
  }
  if (op != "Mul") return Replacement();
  GP_TRY(Replacement found, rms_norm());
  if (!found) {
    GP_TRY(found, gelu());
  }
  return found ? std::move(found) : silu();
}

}  // namespace

Result<Graph> fuse_layers(Graph graph, const PassContext&) {
  std::optional<Expressions> parts;
  return rebuild(std::move(graph), [&](const Rebuilding& step) {
    if (!parts) parts.emplace(step.made);
    return Fusion(step, *parts).run();
  });
}

}  // namespace graphpipe::passes
