#include "frontend/check_batch.h"

#include <algorithm>
#include <map>

#include "frontend/lowering.h"
#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Graph;
using ir::Shape;

Shape bound(const Shape& shape, Samples batch) {
  Shape result;
  for (Dim dim : shape) result.push_back(Dim::fixed(ir::size_at(dim, batch).value_or(INT64_MAX)));
  return result;
}

ir::TensorType bound(const ir::TensorType& type, Samples batch) { return {type.dtype, bound(type.shape, batch)}; }

/// The same graph with numbers for dims, inferred node by node.
class Bound {
 public:
  Bound(const Graph& graph, Samples batch) : graph_(graph), batch_(batch) {
    for (ir::ValueId id : graph.value_ids()) values_.add_value({.type = bound(graph.value(id).type, batch)});
  }

  void check(const ir::Node& node, Diagnostics& problems) const {
    const ops::OpDef* row = ops::find_op(node.op);
    GP_CHECK(row != nullptr);
    ir::Node numbers{.op = node.op, .inputs = node.inputs, .outputs = node.outputs, .origins = node.origins};
    for (const auto& [name, value] : node.attributes) {
      const auto* dims = std::get_if<Shape>(&value);
      if (dims == nullptr) numbers.attributes.set(name, value);
      else numbers.attributes.set(name, bound(*dims, batch_));
    }
    const Result<std::vector<ir::Value>> outputs = row->infer(ops::NodeView(values_, numbers));
    bool same = outputs.ok() && outputs->size() == node.outputs.size();
    for (size_t i = 0; same && i < node.outputs.size(); ++i)
      same = (*outputs)[i].type == values_.value(node.outputs[i]).type;
    if (same) return;
    const std::string why = outputs.ok() ? "has another shape" : outputs.problems().front().message;
    problems.push_back({.code = Code::kBatchNotFound,
                        .origin = node.origins.empty() ? ModelText(node.op) : node.origins.front(),
                        .message = text("does not hold for every batch: with ", batch_.count, " samples it ", why),
                        .hint = kExportRecipe});
  }

 private:
  const Graph& graph_;
  Samples batch_;
  Graph values_;
};

/// Whether the axis is one of pixels, as a convolution leaves them: TorchScript calls some of these by the batch's
/// symbol, where it finds no size of its own for them.
bool is_spatial(const Graph& graph, ir::ValueId value, size_t axis) {
  const ir::NodeId producer = graph.value(value).producer;
  if (axis < 2 || !producer.valid() || graph.value(value).type.shape.front() != Dim::batch()) return false;
  const std::string& op = graph.node(producer).op;
  return op == "Conv" || op == "ConvTranspose";
}

/// Whether the file gives a value the shape that the graph's has with one sample.
bool is_of_one_sample(const ValueInfo& declared, const Shape& shape) {
  if (!declared.is_tensor || !declared.has_shape || declared.dims.size() != shape.size()) return false;
  bool fixes_batch = false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const std::optional<int64_t> size = declared.dims[axis].size;
    if (!size) continue;
    if (ir::size_at(shape[axis], Samples(1)) != *size) return false;
    if (!shape[axis].is_fixed()) fixes_batch = true;
  }
  return fixes_batch;
}

}  // namespace

Status check_two_batches(const Graph& graph, Samples batch) {
  Diagnostics problems;
  for (const Samples samples : {batch, Samples(2 * batch.count)}) {
    const Bound numbers(graph, samples);
    for (ir::NodeId id : graph.node_ids()) numbers.check(graph.node(id), problems);
    if (!problems.empty()) return problems;
  }
  return Ok{};
}

Status check_output_axes(const std::vector<ValueInfo>& declared_outputs, const Graph& graph, const std::string& symbol,
                         std::string_view suspects) {
  Diagnostics problems;
  if (symbol.empty()) return Ok{};
  for (const ir::Output& output : graph.outputs()) {
    const auto declared = std::ranges::find(declared_outputs, output.name.raw(), &ValueInfo::name);
    const Shape& shape = graph.value(output.value).type.shape;
    if (declared == declared_outputs.end() || !declared->has_shape || declared->dims.size() != shape.size()) continue;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (declared->dims[axis].size || declared->dims[axis].symbol != symbol || shape[axis] == Dim::batch() ||
          is_spatial(graph, output.value, axis))
        continue;
      problems.push_back({.code = Code::kBatchNotFound,
                          .origin = output.name,
                          .message = text("the file says that its axis ", axis,
                                          " is the batch, but the graph gives it another size: a constant ", suspects),
                          .hint = kExportRecipe});
      break;
    }
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

Status check_traced_sample(const GraphBody& body, const std::function<const Shape*(const std::string&)>& shape_of) {
  std::map<std::string_view, const ValueInfo*> declared;
  for (const ValueInfo& info : body.value_info) declared.emplace(info.name, &info);
  for (const OnnxNode& node : body.nodes) {
    if (node.exported_from.empty()) continue;
    for (const std::string& output : node.outputs) {
      const auto info = declared.find(output);
      const Shape* const shape = info == declared.end() ? nullptr : shape_of(output);
      if (shape == nullptr || !is_of_one_sample(*info->second, *shape)) continue;
      return Diagnostic{
          .code = Code::kBatchNotFound,
          .origin = node_label(node),
          .message = text("the export's example had one sample, which the exporter took for the batch here: ",
                          quoted(ModelText(output)), " has the shape ", declared_text(*info->second),
                          " in the file, and ", ops::shape_text(*shape), " by its inputs"),
          .hint = two_samples_hint()};
    }
  }
  return Ok{};
}

std::optional<int64_t> baked_batch(const std::vector<Shape>& operands) {
  const auto meets = [](Dim a, Dim b) -> std::optional<int64_t> {
    if (a.is_fixed()) std::swap(a, b);
    const bool baked = a.power == 1 && b.is_fixed() && a.factor > 0 && b.factor % a.factor == 0;
    return baked && b.factor / a.factor > 1 ? std::optional(b.factor / a.factor) : std::nullopt;
  };
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t j = i + 1; j < operands.size(); ++j) {
      const Shape &a = operands[i], &b = operands[j];
      for (size_t k = 1; k <= std::min(a.size(), b.size()); ++k)
        if (const auto found = meets(a[a.size() - k], b[b.size() - k])) return found;
    }
  return std::nullopt;
}

}  // namespace graphpipe::frontend
