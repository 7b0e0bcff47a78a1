// GatherND and ScatterND: look-ups and updates by tuples of indices. With `batch_dims` b the first b axes of data and
// indices are paired, so the batch may be one of them and samples stay separate; an axis that a tuple indexes may not
// be the batch.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/index_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

/// How tuples index data: axes [0, shared) are paired, [shared, shared + width) are indexed, the rest is copied.
struct Tuples {
  size_t shared = 0;
  size_t width = 0;
  size_t end() const { return shared + width; }
};

Result<Tuples> tuples_of(const NodeView& node, const ir::Shape& data, const ir::Shape& indices) {
  const int64_t shared = node.attributes().get_int("batch_dims", 0);
  if (indices.empty() || !indices.back().is_fixed()) return bad_model(node, "needs tuples of indices of fixed width");
  const int64_t width = indices.back().factor;
  if (shared < 0 || width < 0 || static_cast<size_t>(shared) >= indices.size() ||
      static_cast<size_t>(shared) + static_cast<size_t>(width) > data.size()) {
    return bad_model(node, text("cannot index ", shape_text(data), " by ", shape_text(indices)));
  }
  for (size_t i = 0; i < static_cast<size_t>(shared); ++i) {
    if (data[i] == indices[i]) continue;
    return bad_model(node, text("has batch_dims ", shared, " for ", shape_text(data), " and ", shape_text(indices)));
  }
  return Tuples{static_cast<size_t>(shared), static_cast<size_t>(width)};
}

Mixing mixing_of(const ir::Shape& data, Tuples tuples) {
  for (size_t i = tuples.shared; i < tuples.end(); ++i) {
    if (!data[i].is_fixed()) return Mixing::kMixes;
  }
  return Mixing::kNone;
}

ir::Shape looked_up(const ir::Shape& data, const ir::Shape& indices, Tuples tuples) {
  ir::Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), data.begin() + static_cast<int64_t>(tuples.end()), data.end());
  return shape;
}

Inferred infer_gather_nd(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType& data = node.input(0).type;
  const ir::Shape& indices = node.input(1).type.shape;
  GP_TRY(const Tuples tuples, tuples_of(node, data.shape, indices));
  return one_output(node, {data.dtype, looked_up(data.shape, indices, tuples)}, mixing_of(data.shape, tuples));
}

/// C++ expressions for the index into each axis of data below tuples.end(), in the shape of the tuples.
std::vector<std::string> axis_indices(const Emitter& emitter, const ir::Shape& data, const ir::Shape& indices,
                                      Tuples tuples) {
  const std::string all = emitter.in(1);
  std::vector<std::string> result;
  for (size_t i = 0; i < tuples.shared; ++i) {
    ir::Shape column(indices.size() - 1, ir::Dim::fixed(1));
    column[i] = data[i];
    result.push_back(text("at::arange(", emitter.dim(data[i]), ", ", all, ".options().dtype(at::kLong)).reshape(",
                          emitter.dims(column), ")"));
  }
  for (size_t i = 0; i < tuples.width; ++i) result.push_back(text(all, ".select(-1, ", i, ").to(at::kLong)"));
  return result;
}

/// The braced list that the index kernels take.
std::string index_list(Emitter& emitter, const ir::Shape& data, const ir::Shape& indices, Tuples tuples) {
  emitter.include("ATen/ops/arange.h");
  std::string list;
  for (const std::string& each : axis_indices(emitter, data, indices, tuples))
    list += (list.empty() ? "" : ", ") + each;
  return "{" + list + "}";
}

void emit_gather_nd(Emitter& emitter) {
  const ir::Shape &data = emitter.node().input(0).type.shape, &indices = emitter.node().input(1).type.shape;
  const Tuples tuples = tuples_of(emitter.node(), data, indices).value();
  if (tuples.end() == 0) {
    return emitter.assign(0, text(emitter.in(0), ".expand(", emitter.dims(emitter.node().output(0).type.shape), ")"),
                          "ATen/core/Tensor.h");
  }
  const std::string list = index_list(emitter, data, indices, tuples);
  emitter.assign(0, text("graphpipe::runtime::index(", emitter.in(0), ", ", list, ")"), kTensorLists);
}

Status gather_nd_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const NodeView& node = builder.forward();
  builder.set_input_gradient(0, builder.add_one(0, "GatherNDGrad", {builder.output_gradient(0), builder.input(1)},
                                                {{"batch_dims", node.attributes().get_int("batch_dims", 0)},
                                                 {"shape", node.input(0).type.shape}}));
  return Ok{};
}

/// (gradient, indices){batch_dims, shape: of the data}
Inferred infer_gather_nd_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  ir::Shape shape = node.attributes().get_shape("shape");
  const ir::Shape& indices = node.input(1).type.shape;
  GP_TRY(const Tuples tuples, tuples_of(node, shape, indices));
  if (looked_up(shape, indices, tuples) != node.input(0).type.shape) return bad_model(node, "does not fit its look-up");
  const Mixing mixing = mixing_of(shape, tuples);
  return one_output(node, {node.input(0).type.dtype, std::move(shape)}, mixing);
}

/// Tuples become row numbers of data viewed as [rows, rest]; contributions to a row that was read several times are
/// added in order.
void emit_gather_nd_gradient(Emitter& emitter) {
  const ir::Shape &shape = emitter.node().output(0).type.shape, &indices = emitter.node().input(1).type.shape;
  const Tuples tuples = tuples_of(emitter.node(), shape, indices).value();
  const std::string row = emitter.local("row");
  emitter.statement(text("at::Tensor ", row, " = at::zeros({}, ", emitter.in(1), ".options().dtype(at::kLong));"),
                    "ATen/ops/zeros.h");
  const std::vector<std::string> each = axis_indices(emitter, shape, indices, tuples);
  for (size_t i = 0; i < each.size(); ++i) {
    emitter.statement(text(row, " = ", row, ".mul(", emitter.dim(shape[i]), ").add(", each[i], ".remainder(",
                           emitter.dim(shape[i]), "));"),
                      "ATen/ops/arange.h");
  }
  const ir::Dim count = product_of(indices, 0, indices.size() - 1), rows = product_of(shape, 0, tuples.end());
  const ir::Dim width = product_of(shape, tuples.end(), shape.size());
  const ir::Shape tuple_shape(indices.begin(), indices.end() - 1);
  // The kernel accumulates in the gradient's type, where a 16-bit sum stops growing after a few hundred terms.
  const ir::DType type = emitter.node().output(0).type.dtype;
  const std::string widened = is_16_bits(type) ? ".to(at::kFloat)" : "";
  const std::string narrowed = is_16_bits(type) ? text(".to(", scalar_type(type), ")") : "";
  emitter.assign(0,
                 text("at::embedding_dense_backward(", emitter.in(0), ".reshape(", emitter.dims({count, width}), ")",
                      widened, ", ", row, ".expand(", emitter.dims(tuple_shape), ").reshape(", emitter.dims({count}),
                      "), ", emitter.dim(rows), ", -1, false)", narrowed, ".reshape(", emitter.dims(shape), ")"),
                 "ATen/ops/embedding_dense_backward.h");
}

// --- ScatterND(data, indices, updates){reduction: none or add} ---

/// Whether updates are added. The frontend lowers the other reductions to ScatterElements.
Result<bool> scatter_adds(const NodeView& node) {
  const std::string reduction = node.attributes().get_string("reduction", "none");
  if (reduction == "none" || reduction == "add") return reduction == "add";
  return problem_at(node, Code::kUnsupportedOp, text("has the reduction ", quoted(ModelText(reduction))),
                    "only none and add are supported");
}

Inferred infer_scatter_nd(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_index(node, {1}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 2}));
  GP_TRY_VOID(scatter_adds(node));
  const ir::TensorType& data = node.input(0).type;
  const ir::Shape& indices = node.input(1).type.shape;
  GP_TRY(const Tuples tuples, tuples_of(node, data.shape, indices));
  if (node.input(2).type.shape != looked_up(data.shape, indices, tuples)) {
    return bad_model(node, text("has updates of shape ", shape_text(node.input(2).type.shape)));
  }
  // Rows of updates and indices are written to places of data: if they contain the batch, samples mix there.
  const bool batched_tuples = !ir::element_count(indices).value_or(ir::Dim::batch()).is_fixed();
  return one_output(node, data, batched_tuples ? Mixing::kMixes : mixing_of(data.shape, tuples));
}

void emit_scatter_nd(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape &data = node.input(0).type.shape, &indices = node.input(1).type.shape;
  const std::string list = index_list(emitter, data, indices, tuples_of(node, data, indices).value());
  emitter.assign(0,
                 text("graphpipe::runtime::index_put(", emitter.in(0), ", ", list, ", ", emitter.in(2), ", ",
                      boolean(scatter_adds(node).value()), ")"),
                 kTensorLists);
}

Status scatter_nd_gradient(GradientBuilder& builder) {
  const std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(1)};
  GP_TRY(const bool add, scatter_adds(builder.forward()));
  if (builder.wants(0)) {
    builder.set_input_gradient(0, add ? builder.output_gradient(0) : builder.add_one(0, "ScatterNDGradData", inputs));
  }
  if (builder.wants(2)) builder.set_input_gradient(2, builder.add_one(2, "GatherND", inputs));
  return Ok{};
}

/// (gradient, indices): what was overwritten has gradient 0.
Inferred infer_scatter_nd_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_index(node, {1}));
  const ir::TensorType& data = node.input(0).type;
  const ir::Shape& indices = node.input(1).type.shape;
  GP_TRY(const Tuples tuples, tuples_of(node, data.shape, indices));
  const bool batched_tuples = !ir::element_count(indices).value_or(ir::Dim::batch()).is_fixed();
  return one_output(node, data, batched_tuples ? Mixing::kMixes : mixing_of(data.shape, tuples));
}

void emit_scatter_nd_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape &data = node.input(0).type.shape, &indices = node.input(1).type.shape;
  const std::string list = index_list(emitter, data, indices, tuples_of(node, data, indices).value());
  emitter.assign(
      0,
      text("graphpipe::runtime::index_put(", emitter.in(0), ", ", list, ", ", emitter.in(0), ".new_zeros({}), false)"),
      kTensorLists);
}

// --- entries ---

std::vector<OpDef> gather_nd_rows() {
  const ir::Attributes shared = {{"batch_dims", int64_t{1}}};
  ir::Attributes shared_gradient = shared;
  shared_gradient.set("shape", shape_of({kB, 4, 3}));
  return {
      {.name = "GatherND",
       .infer = infer_gather_nd,
       .work = copy_work,
       .gradient = gather_nd_gradient,
       .emit = emit_gather_nd,
       .examples = {{.inputs = {normal({kB, 4, 3}), integers({kB, 1}, -4, 4)}, .attributes = shared},
                    {.inputs = {weight(normal({4, 3, 2})), integers({kB, 5, 2}, -3, 3)}},
                    {.inputs = {normal({kB, 4, 3}), integers({kB, 2, 2}, 0, 3)}, .attributes = shared}}},
      {.name = "GatherNDGrad",
       .infer = infer_gather_nd_gradient,
       .work = copy_work,
       .temporaries = 2,
       .emit = emit_gather_nd_gradient,
       .examples = {{.inputs = {normal({kB, 3}), integers({kB, 1}, 0, 4)}, .attributes = shared_gradient}}},
  };
}

std::vector<OpDef> scatter_nd_rows() {
  return {
      {.name = "ScatterND",
       .infer = infer_scatter_nd,
       .work = copy_work,
       .gradient = scatter_nd_gradient,
       .emit = emit_scatter_nd,
       .examples = {{.inputs = {normal({4, kB, 3}), weight(integers({1, 1}, 0, 4)), normal({1, kB, 3})}},
                    {.inputs = {weight(normal({4, 3})), integers({kB, 2}, 0, 3), normal({kB})},
                     .attributes = {{"reduction", std::string("add")}}}}},
      {.name = "ScatterNDGradData",
       .infer = infer_scatter_nd_gradient,
       .work = copy_work,
       .emit = emit_scatter_nd_gradient,
       .examples = {{.inputs = {normal({4, kB}), weight(integers({2, 1}, 0, 4))}}}},
  };
}

}  // namespace

std::span<const OpDef> gather_nd_ops() {
  static const std::vector<OpDef> rows = [] {
    std::vector<OpDef> all = gather_nd_rows();
    for (const OpDef& row : scatter_nd_rows()) all.push_back(row);
    return all;
  }();
  return rows;
}

}  // namespace graphpipe::ops
