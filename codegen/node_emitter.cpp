#include "codegen/node_emitter.h"

#include "ops/emit_helpers.h"
#include "support/check.h"

namespace graphpipe::codegen {

std::string dim_text(ir::Dim dim) {
  if (dim.power == 0) return text(dim.factor);
  std::string result = dim.factor == 1 ? "b" : text(dim.factor, " * b");
  for (int i = 1; i < dim.power; ++i) result += " * b";
  return result;
}

std::string type_text(const ir::TensorType& type) {
  std::string result(ir::dtype_name(type.dtype));
  result += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (i) result += ',';
    result += dim_text(type.shape[i]);
  }
  return result + ']';
}

std::string options_text(ir::DType dtype) {
  return text("graphpipe::runtime::options_of(a, ", ops::scalar_type(dtype), ")");
}

NodeEmitter::NodeEmitter(const ir::Graph& graph, ir::NodeId id, const std::map<ir::ParamId, size_t>& weight_index,
                         const IdMap<ir::ValueId, ir::ParamId>& param_of, Naming& naming,
                         std::set<std::string>& headers)
    : graph_(&graph),
      id_(id),
      view_(graph, graph.node(id)),
      weight_index_(&weight_index),
      param_of_(&param_of),
      naming_(&naming),
      headers_(&headers) {
  // Names may be numbered by first mention. Mentioning the operands here, in order, keeps the numbers independent of
  // the order in which a compiler evaluates arguments.
  for (size_t i = 0; i < view_.input_count(); ++i)
    if (view_.has_input(i)) operand(i);
  const ops::OpDef* entry = ops::find_op(view_.node().op);
  if (entry == nullptr || entry->updates_inputs == nullptr) return;
  updated_inputs_ = entry->updates_inputs(view_);
  for (size_t i = 0; i < view_.input_count(); ++i)
    if (updated_inputs_ >> i & 1)
      statement(text("const at::Tensor ", in(i), " = a.recompute ? ", operand(i), ".clone() : ", operand(i)), "");
}

std::string NodeEmitter::in(size_t i) const {
  if (!view_.has_input(i)) return "{}";
  return updated_inputs_ >> i & 1 ? local(text("state", i)) : operand(i);
}

std::string NodeEmitter::operand(size_t i) const {
  const ir::ValueId value = view_.node().inputs[i];
  const ir::ParamId param = (*param_of_)[value];
  if (!param.valid()) return naming_->value(value);
  const auto index = weight_index_->find(param);
  GP_CHECK(index != weight_index_->end());
  return naming_->place({Place::Array::kWeight, index->second});
}

std::string NodeEmitter::dims(const ir::Shape& shape) const {
  std::string result = "{";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) result += ", ";
    result += dim_text(shape[i]);
  }
  return result + "}";
}

std::string NodeEmitter::options(ir::DType dtype) {
  include(kTensorOptionsHeader);
  return options_text(dtype);
}

std::string NodeEmitter::random_key() const {
  const ir::NodeId forward = view_.node().serves.valid() ? view_.node().serves : id_;
  // Not its id, which depends on what stands around it: a precision adds casts.
  uint32_t before = 0;
  for (const ir::NodeId id : graph_->node_ids()) {
    if (id == forward) break;
    const ops::OpDef* entry = ops::find_op(graph_->node(id).op);
    if (entry != nullptr && entry->is_random) ++before;
  }
  return text("graphpipe::runtime::RandomKey{a.seed, a.step, ", naming_->number(before),
              ", a.first_sample, a.step_on_device}");
}

void NodeEmitter::include(std::string_view header) {
  if (!header.empty()) headers_->insert(std::string(header));
}

void NodeEmitter::assign(size_t i, std::string_view expression, std::string_view header) {
  GP_CHECK(i < view_.output_count() && !assigned_.contains(i));
  include(header);
  assigned_.insert(i);
  lines_.push_back({text(naming_->value(view_.node().outputs[i]), " = ", expression, ";"), true});
}

void NodeEmitter::statement(std::string_view code, std::string_view header) {
  include(header);
  const bool closed = !code.empty() && (code.back() == ';' || code.back() == '}');
  lines_.push_back({text(code, closed ? "" : ";"), false});
}

std::string NodeEmitter::local(std::string_view name) const { return naming_->local(name, id_); }

std::vector<std::string> NodeEmitter::lines() const {
  bool has_statement = false;
  for (const Line& line : lines_) has_statement |= !line.is_assignment;
  std::vector<std::string> result;
  if (!has_statement) {
    for (const Line& line : lines_) result.push_back("at::Tensor " + line.text);
    return result;
  }
  if (assigned_.empty()) {
    for (const Line& line : lines_) result.push_back(line.text);
    return result;
  }
  std::string declaration = "at::Tensor ";
  for (size_t i : assigned_) {
    if (declaration.back() != ' ') declaration += ", ";
    declaration += naming_->value(view_.node().outputs[i]);
  }
  result.push_back(declaration + ";");
  result.push_back("{");
  for (const Line& line : lines_) result.push_back("  " + line.text);
  result.push_back("}");
  return result;
}

}  // namespace graphpipe::codegen
