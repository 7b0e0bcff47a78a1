#include "frontend/node_context.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "frontend/lower_selection.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {

Binding& NodeContext::input(size_t i) {
  Binding* binding = lowering_->find(node_->inputs[i]);
  GP_CHECK(binding != nullptr);  // check_model has checked that every name is defined
  return *binding;
}

Result<ir::ValueId> NodeContext::value(size_t i) {
  if (!has_input(i)) return ir::ValueId();
  return lowering_->value_of(input(i), *node_);
}

const Known* NodeContext::known(size_t i) {
  if (!has_input(i)) return nullptr;
  const Binding& binding = input(i);
  return binding.known ? &*binding.known : nullptr;
}

Result<std::vector<int64_t>> NodeContext::integers(size_t i, std::string_view what) {
  const Known* operand = known(i);
  if (operand == nullptr)
    return problem(Code::kUnresolvedShape, text("its ", what, " depend on data"),
                   "make them constants or sizes of inputs");
  if (std::optional<std::vector<int64_t>> numbers = whole_numbers(*operand)) return *numbers;
  return problem(Code::kUnresolvedShape, text("its ", what, " are no fixed integers"),
                 "make them constants that do not depend on the batch");
}

Result<ir::Shape> NodeContext::dims(size_t i, std::string_view what) {
  const Known* operand = known(i);
  if (operand == nullptr)
    return problem(Code::kUnresolvedShape, text("its ", what, " depends on data or is no multiple of the batch"),
                   "compute it from sizes of inputs");
  std::optional<ir::Shape> shape = as_dims(*operand);
  if (shape && shape->size() <= static_cast<size_t>(kMaxRank)) return *shape;
  return problem(Code::kBadModel, text("its ", what, " is no list of at most ", kMaxRank, " integers"),
                 "export the model again");
}

Result<std::vector<double>> NodeContext::reals(size_t i, std::string_view what) {
  const Known* operand = known(i);
  const std::optional<size_t> count = operand == nullptr ? std::nullopt : known_count(operand->shape);
  if (!count) return problem(Code::kUnresolvedShape, text("its ", what, " depends on data"), "make it a constant");
  std::vector<double> numbers;
  for (size_t k = 0; k < *count; ++k) {
    if (!operand->element(k).is_fixed())
      return problem(Code::kUnresolvedShape, text("its ", what, " depends on the batch"), "make it a constant");
    numbers.push_back(operand->element(k).factor());
  }
  return numbers;
}

int64_t NodeContext::int_attribute(std::string_view name, int64_t fallback) const {
  const Attribute* found = node_->find(name);
  return found == nullptr ? fallback : found->i;
}
double NodeContext::float_attribute(std::string_view name, double fallback) const {
  const Attribute* found = node_->find(name);
  return found == nullptr ? fallback : found->f;
}
std::string NodeContext::string_attribute(std::string_view name, std::string_view fallback) const {
  const Attribute* found = node_->find(name);
  return found == nullptr ? std::string(fallback) : found->s;
}
std::vector<int64_t> NodeContext::ints_attribute(std::string_view name, std::vector<int64_t> fallback) const {
  const Attribute* found = node_->find(name);
  return found == nullptr ? fallback : found->ints;
}

std::vector<std::string> NodeContext::strings_attribute(std::string_view name) const {
  const Attribute* found = node_->find(name);
  return found == nullptr ? std::vector<std::string>() : found->strings;
}

Result<int64_t> NodeContext::axis(int64_t axis, size_t rank) const {
  const auto size = static_cast<int64_t>(rank);
  if (axis >= -size && axis < size) return axis < 0 ? axis + size : axis;
  return problem(Code::kBadModel, text("axis ", axis, " of a tensor of rank ", rank), "export the model again");
}

Result<std::vector<int64_t>> NodeContext::axes(const std::vector<int64_t>& given, size_t rank) const {
  std::vector<int64_t> result;
  for (int64_t item : given) {
    GP_TRY(const int64_t one, axis(item, rank));
    result.push_back(one);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    return problem(Code::kBadModel, "names an axis twice", "export the model again");
  return result;
}

Result<std::vector<int64_t>> NodeContext::permutation(size_t rank) const {
  std::vector<int64_t> perm(rank);
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = ints_attribute("perm", std::move(perm));
  GP_TRY(const std::vector<int64_t> each, axes(perm, rank));
  if (each.size() == rank) return perm;
  return problem(Code::kBadModel, text("moves ", each.size(), " axes of a tensor of rank ", rank),
                 "export the model again");
}

Diagnostic NodeContext::problem(Code code, std::string message, std::string hint) const {
  return {.code = code,
          .severity = Severity::kError,
          .origin = node_label(*node_),
          .message = text(Terminal::encode_text(node_->op).str(), ": ", message),
          .hint = std::move(hint)};
}

void NodeContext::note(Severity severity, Code code, std::string message, std::string hint) {
  Diagnostic diagnostic = problem(code, std::move(message), std::move(hint));
  diagnostic.severity = severity;
  lowering_->notes().push_back(std::move(diagnostic));
}

Result<std::vector<ir::ValueId>> NodeContext::emit(std::string_view op, std::vector<ir::ValueId> inputs,
                                                   ir::Attributes attributes, size_t outputs) {
  const ops::OpDef* entry = ops::find_op(op);
  if (entry == nullptr)
    return problem(Code::kUnsupportedOp, text("needs the operation ", op, ", which is not in the op dictionary"),
                   "express the model with other operators");
  ir::Node node{.op = std::string(op),
                .attributes = std::move(attributes),
                .inputs = std::move(inputs),
                .outputs = std::vector<ir::ValueId>(outputs),
                .origins = {node_label(*node_)}};
  ir::Graph& graph = lowering_->graph();
  GP_TRY(std::vector<ir::Value> types, entry->infer(ops::NodeView(graph, node)));
  // Operators may have additional outputs for their gradient, such as a mean; the ONNX outputs come first.
  if (types.size() < outputs)
    return problem(Code::kUnsupportedOp, text("the form with ", outputs, " outputs is not supported"),
                   "drop the outputs that the model does not need");
  for (const ir::Value& type : types)
    if (counts_places(type.type.shape)) return refuse_selection(*this, "makes a tensor whose size depends on a mask");
  node.outputs.clear();
  const ir::NodeId id = graph.add_node(std::move(node), std::move(types));
  return graph.node(id).outputs;
}

Result<ir::ValueId> NodeContext::emit_one(std::string_view op, std::vector<ir::ValueId> inputs,
                                          ir::Attributes attributes) {
  GP_TRY(const std::vector<ir::ValueId> made, emit(op, std::move(inputs), std::move(attributes)));
  return made.front();
}

Result<ir::ValueId> NodeContext::emit_slice(ir::ValueId value, int64_t axis, int64_t first, int64_t last) {
  return emit_one("Slice", {value},
                  {{"starts", std::vector<int64_t>{first}},
                   {"ends", std::vector<int64_t>{last}},
                   {"axes", std::vector<int64_t>{axis}},
                   {"steps", std::vector<int64_t>{1}}});
}

Status NodeContext::has_room_for(int64_t elements) const {
  if (elements <= limits().constant_elements - lowering_->constant_elements()) return Ok{};
  return problem(Code::kLimitExceeded,
                 text("with the operators before it, it is written out as more than ", limits().constant_elements,
                      " constant numbers"),
                 "use smaller forms, or fewer of them");
}

Result<ir::ValueId> NodeContext::constant(std::string_view what, ir::DType dtype, ir::Shape shape,
                                          const std::vector<double>& numbers) {
  GP_TRY_VOID(has_room_for(std::ssize(numbers)));
  lowering_->constant_elements() += std::ssize(numbers);
  std::string bytes(numbers.size() * sizeof(float), '\0');
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<float>(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof(float), &number, sizeof(float));
  }
  Binding binding;
  binding.type = {ir::DType::kFloat32, std::move(shape)};
  if (dtype == ir::DType::kFloat64) {
    bytes.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
    binding.type.dtype = dtype;
  }
  binding.data = ir::InlineData{std::move(bytes)};
  binding.origin = ParamOrigin::kFolded;
  binding.name = text(node_label(*node_).raw(), ".", what);
  GP_TRY(const ir::ValueId value, lowering_->value_of(binding, *node_));
  if (binding.type.dtype == dtype) return value;
  GP_TRY(const std::vector<ir::ValueId> cast, emit("Cast", {value}, {{"to", std::string(ir::dtype_name(dtype))}}));
  return cast[0];
}

Result<ir::ValueId> NodeContext::filled(double value, ir::TensorType type) {
  const std::string name(ir::dtype_name(type.dtype));
  GP_TRY(const auto made, emit("Full", {}, {{"shape", std::move(type.shape)}, {"value", value}, {"to", name}}));
  return made[0];
}

Status NodeContext::emit_outputs(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes) {
  size_t count = node_->outputs.size();
  while (count > 1 && !is_read(count - 1)) --count;
  GP_TRY(const std::vector<ir::ValueId> results, emit(op, std::move(inputs), std::move(attributes), count));
  for (size_t i = 0; i < count; ++i) bind(i, results[i]);
  return Ok{};
}

Result<std::vector<ir::ValueId>> NodeContext::all_values() {
  std::vector<ir::ValueId> values;
  for (size_t i = 0; i < node_->inputs.size(); ++i) {
    GP_TRY(const ir::ValueId id, value(i));
    values.push_back(id);
  }
  while (!values.empty() && !values.back().valid()) values.pop_back();
  return values;
}

void NodeContext::bind(size_t output, ir::ValueId value) {
  if (has_output(output)) lowering_->bind_value(node_->outputs[output], value);
}

void NodeContext::bind_alias(size_t i) { lowering_->bind_alias(node_->outputs[0], node_->inputs[i]); }

}  // namespace graphpipe::frontend
