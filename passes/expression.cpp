#include "passes/expression.h"

#include <cmath>
#include <cstring>
#include <set>

namespace graphpipe::passes {

using ir::Node;
using ir::ValueId;

namespace {

constexpr size_t kMaxFactors = 4;
/// A mask element this low, added to a score, makes the score's softmax weight zero.
constexpr float kNoScoreOutweighs = -1e30F;

template <typename T>
std::optional<double> uniform_element(const std::string& bytes) {
  if (bytes.size() < sizeof(T) || bytes.size() % sizeof(T) != 0) return std::nullopt;
  T first{}, other{};
  std::memcpy(&first, bytes.data(), sizeof(T));
  for (size_t at = sizeof(T); at < bytes.size(); at += sizeof(T)) {
    std::memcpy(&other, bytes.data() + at, sizeof(T));
    if (!(other == first)) return std::nullopt;
  }
  return static_cast<double>(first);
}

}  // namespace

const Node* Expressions::made_by(ValueId value, std::string_view op) const {
  if (!value.valid() || !graph_->value(value).producer.valid()) return nullptr;
  const Node& node = graph_->node(graph_->value(value).producer);
  return node.op == op ? &node : nullptr;
}

const ir::Param* Expressions::constant_param(ValueId value) const {
  if (!value.valid() || value.index() >= params_.size() || !params_[value].valid()) return nullptr;
  const ir::Param& param = graph_->param(params_[value]);
  return param.trainable || param.kind != ir::ParamKind::kConstant ? nullptr : &param;
}

std::optional<double> Expressions::constant(ValueId value) const {
  const ir::Param* param = constant_param(value);
  if (param == nullptr) return std::nullopt;
  if (const auto* filled = std::get_if<ir::FilledData>(&param->data)) return filled->value;
  const auto* data = std::get_if<ir::InlineData>(&param->data);
  if (data == nullptr) return std::nullopt;
  switch (graph_->value(value).type.dtype) {
    case ir::DType::kFloat32:
      return uniform_element<float>(data->bytes);
    case ir::DType::kFloat64:
      return uniform_element<double>(data->bytes);
    case ir::DType::kInt64:
      return uniform_element<int64_t>(data->bytes);
    default:
      return std::nullopt;
  }
}

bool Expressions::counts_along(ValueId value, size_t axis_from_end) const {
  const ir::Param* param = constant_param(value);
  const auto* data = param != nullptr ? std::get_if<ir::InlineData>(&param->data) : nullptr;
  const ir::TensorType& type = graph_->value(value).type;
  if (data == nullptr || type.dtype != ir::DType::kInt64 || type.shape.size() < axis_from_end) return false;
  const auto count = static_cast<size_t>(type.shape.end()[-static_cast<ptrdiff_t>(axis_from_end)].factor);
  if (data->bytes.size() != count * sizeof(int64_t)) return false;
  for (size_t i = 0; i < count; ++i) {
    int64_t element = 0;
    std::memcpy(&element, data->bytes.data() + i * sizeof element, sizeof element);
    if (element != static_cast<int64_t>(i)) return false;
  }
  return true;
}

std::optional<Columns> Expressions::constant_columns(ValueId condition) const {
  const ir::Param* param = constant_param(condition);
  const auto* data = param != nullptr ? std::get_if<ir::InlineData>(&param->data) : nullptr;
  const auto size = static_cast<size_t>(shape(condition).back().factor);
  if (data == nullptr || size == 0 || data->bytes.size() != size * size) return std::nullopt;
  const bool first = data->bytes.front() != '\0';
  for (size_t i = 0; i < size * size; ++i)
    if ((data->bytes[i] != '\0') != (i % size > i / size ? !first : first)) return std::nullopt;
  return first ? Columns::kUpToDiagonal : Columns::kLater;
}

std::optional<Columns> Expressions::compared_columns(const Node& comparison) const {
  const bool rows_first = counts_along(comparison.inputs[0], 2) && counts_along(comparison.inputs[1], 1);
  const bool columns_first = counts_along(comparison.inputs[0], 1) && counts_along(comparison.inputs[1], 2);
  if ((comparison.op == "Less" && rows_first) || (comparison.op == "Greater" && columns_first)) return Columns::kLater;
  if ((comparison.op == "GreaterOrEqual" && rows_first) || (comparison.op == "LessOrEqual" && columns_first))
    return Columns::kUpToDiagonal;
  return std::nullopt;
}

std::optional<Columns> Expressions::marked_columns(ValueId condition) const {
  const ir::TensorType& type = graph_->value(condition).type;
  if (type.dtype != ir::DType::kBool || type.shape.size() < 2 || type.shape.end()[-1] != type.shape.end()[-2])
    return std::nullopt;
  const Node* contrary = made_by(condition, "Not");
  const ValueId marking = contrary != nullptr ? contrary->inputs[0] : condition;
  std::optional<Columns> marked = constant_columns(marking);
  const ir::NodeId maker = graph_->value(marking).producer;
  if (maker.valid() && graph_->node(maker).inputs.size() == 2) marked = compared_columns(graph_->node(maker));
  if (!marked || contrary == nullptr) return marked;
  return *marked == Columns::kLater ? Columns::kUpToDiagonal : Columns::kLater;
}

bool Expressions::is_chosen_causal_mask(ValueId value) const {
  const Node* chosen = made_by(value, "Where");
  if (chosen == nullptr || graph_->value(value).type.dtype != ir::DType::kFloat32) return false;
  if (shape(chosen->inputs[0]) != shape(value)) return false;
  const std::optional<Columns> marked = marked_columns(chosen->inputs[0]);
  if (!marked) return false;
  const bool hides = *marked == Columns::kLater;
  const std::optional<double> later = constant(chosen->inputs[hides ? 1 : 2]);
  return later && *later <= kNoScoreOutweighs && constant(chosen->inputs[hides ? 2 : 1]) == 0.0;
}

bool Expressions::is_causal_mask(ValueId value) const {
  if (is_chosen_causal_mask(value)) return true;
  const ir::Param* param = constant_param(value);
  const auto* data = param != nullptr ? std::get_if<ir::InlineData>(&param->data) : nullptr;
  if (data == nullptr || shape(value).size() < 2) return false;
  const ir::TensorType& type = graph_->value(value).type;
  const auto size = static_cast<size_t>(type.shape.back().factor);
  const bool is_matrix = data->bytes.size() == size * size * sizeof(float) && type.shape.end()[-2] == type.shape.back();
  if (type.dtype != ir::DType::kFloat32 || !is_matrix) return false;
  for (size_t i = 0; i < size * size; ++i) {
    float element = 0;
    std::memcpy(&element, data->bytes.data() + i * sizeof element, sizeof element);
    const bool is_later = i % size > i / size;
    if (is_later ? !(element <= kNoScoreOutweighs) : element != 0) return false;
  }
  return true;
}

bool Expressions::is_constant(ValueId value, double number) const {
  const std::optional<double> found = constant(value);
  return found && std::abs(*found - number) <= 1e-6 * std::abs(number);
}

std::optional<std::pair<ValueId, double>> Expressions::with_constant(ValueId value, std::string_view op) const {
  const Node* node = made_by(value, op);
  if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
  for (size_t i = 0; i < 2; ++i)
    if (const std::optional<double> number = constant(node->inputs[i])) return std::pair(node->inputs[1 - i], *number);
  return std::nullopt;
}

std::optional<ValueId> Expressions::square(ValueId value) const {
  if (const Node* power = made_by(value, "Pow"); power != nullptr && is_constant(power->inputs[1], 2))
    return power->inputs[0];
  if (const Node* product = made_by(value, "Mul"); product != nullptr && product->inputs[0] == product->inputs[1])
    return product->inputs[0];
  return std::nullopt;
}

std::optional<ValueId> Expressions::row_mean(ValueId value) const {
  const Node* mean = made_by(value, "ReduceMean");
  if (mean == nullptr || mean->attributes.get_int("keepdims", 1) == 0) return std::nullopt;
  const std::vector<int64_t> axes = mean->attributes.get_ints("axes");
  const auto rank = static_cast<int64_t>(shape(mean->inputs[0]).size());
  if (axes.size() != 1 || (axes[0] != -1 && axes[0] != rank - 1)) return std::nullopt;
  return mean->inputs[0];
}

std::optional<ValueId> Expressions::square_root(ValueId value) const {
  if (const Node* root = made_by(value, "Sqrt")) return root->inputs[0];
  if (const Node* power = made_by(value, "Pow"); power != nullptr && is_constant(power->inputs[1], 0.5))
    return power->inputs[0];
  return std::nullopt;
}

std::vector<std::pair<ValueId, ValueId>> Expressions::quotients(ValueId value) const {
  std::vector<std::pair<ValueId, ValueId>> found;
  if (const Node* quotient = made_by(value, "Div")) found.emplace_back(quotient->inputs[0], quotient->inputs[1]);
  const Node* product = made_by(value, "Mul");
  if (product == nullptr) return found;
  for (size_t i = 0; i < 2; ++i) {
    if (const Node* inverse = made_by(product->inputs[i], "Reciprocal"))
      found.emplace_back(product->inputs[1 - i], inverse->inputs[0]);
    const Node* inverse = made_by(product->inputs[i], "Div");
    if (inverse != nullptr && is_constant(inverse->inputs[0], 1))
      found.emplace_back(product->inputs[1 - i], inverse->inputs[1]);
  }
  return found;
}

bool Expressions::is_trained(ValueId value) const {
  std::vector<ValueId> open = {value};
  std::set<ValueId> seen;
  while (!open.empty()) {
    const ValueId next = open.back();
    open.pop_back();
    if (!next.valid() || !seen.insert(next).second) continue;
    if (next.index() < params_.size() && params_[next].valid() && graph_->param(params_[next]).trainable) return true;
    const ir::NodeId maker = graph_->value(next).producer;
    if (!maker.valid()) continue;
    const std::vector<ValueId>& inputs = graph_->node(maker).inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return false;
}

std::vector<ValueId> Expressions::factors(ValueId value) const {
  std::vector<ValueId> all = {value};
  for (size_t i = 0; i < all.size() && all.size() < kMaxFactors;) {
    const Node* product = made_by(all[i], "Mul");
    if (product == nullptr) {
      ++i;
      continue;
    }
    all[i] = product->inputs[0];
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, product->inputs[1]);
  }
  return all;
}

}  // namespace graphpipe::passes
