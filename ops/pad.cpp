// Pad{pads, mode, value}: rows are added before and after along each axis; negative numbers remove rows. Modes:
// constant, reflect, edge. Along the batch axis nothing may be added.
//
// ATen's reflect and edge kernels work on the last one to three axes after one or two others, so the tensor is viewed
// as [all axes before, padded axes].

#include <algorithm>
#include <cstdlib>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

struct Padding {
  int64_t before = 0, after = 0;
};

/// One entry per axis. The attribute lists all numbers before, then all after.
Result<std::vector<Padding>> padding_of(const NodeView& node, size_t rank) {
  constexpr int64_t kMaxPad = int64_t{1} << 32;
  const std::vector<int64_t> pads = node.attributes().get_ints("pads");
  if (pads.size() != 2 * rank) return bad_model(node, text("has ", pads.size(), " pads for rank ", rank));
  std::vector<Padding> result;
  for (size_t i = 0; i < rank; ++i) {
    const Padding each{pads[i], pads[i + rank]};
    if (std::max(std::abs(each.before / 2), std::abs(each.after / 2)) > kMaxPad)
      return bad_model(node, "has huge pads");
    result.push_back(each);
  }
  return result;
}

std::string mode_of(const NodeView& node) { return node.attributes().get_string("mode", "constant"); }

/// The number of trailing axes from the first padded one on.
size_t padded_axes(const std::vector<Padding>& padding) {
  for (size_t i = 0; i < padding.size(); ++i) {
    if (padding[i].before != 0 || padding[i].after != 0) return padding.size() - i;
  }
  return 0;
}

Status expect_mode(const NodeView& node, const ir::Shape& shape, const std::vector<Padding>& padding) {
  const std::string mode = mode_of(node);
  if (mode == "constant") return Ok{};
  if (mode != "reflect" && mode != "edge") {
    return problem_at(node, Code::kUnsupportedOp, text("has the mode ", quoted(ModelText(mode))),
                      "only constant, reflect and edge are supported");
  }
  if (padded_axes(padding) > 3) {
    return problem_at(node, Code::kUnsupportedOp, text("pads more than the last 3 axes in mode ", mode),
                      "transpose the padded axes to the end");
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto [before, after] = padding[i];
    if (before < 0 || after < 0) return bad_model(node, text("cuts in mode ", mode));
    if (mode == "reflect" && std::max(before, after) >= std::max<int64_t>(shape[i].factor, 1)) {
      return bad_model(node, text("reflects more rows than axis ", i, " has"));
    }
  }
  return Ok{};
}

Result<ir::Shape> padded(const NodeView& node, ir::Shape shape) {
  GP_TRY(const std::vector<Padding> padding, padding_of(node, shape.size()));
  GP_TRY_VOID(expect_mode(node, shape, padding));
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto [before, after] = padding[i];
    if (before == 0 && after == 0) continue;
    if (!shape[i].is_fixed()) {
      return problem_at(node, Code::kMixesSamples, "adds rows to the batch axis",
                        "move this node out of the model, or check which axis is the batch");
    }
    shape[i].factor += before + after;
  }
  return shape;
}

Inferred infer_pad(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY(ir::Shape shape, padded(node, node.input(0).type.shape));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

/// ATen lists the last axis first; `sign` -1 undoes a padding.
std::string aten_pads(const std::vector<Padding>& padding, size_t axes, int64_t sign = 1) {
  std::vector<int64_t> pads;
  for (size_t i = 0; i < axes; ++i) {
    const Padding& each = padding[padding.size() - 1 - i];
    pads.push_back(sign * each.before);
    pads.push_back(sign * each.after);
  }
  return list(pads);
}

/// [all axes before, the last `axes` ones].
ir::Shape joined(const ir::Shape& shape, size_t axes) {
  const auto tail = shape.end() - static_cast<int64_t>(axes);
  ir::Dim lead;
  for (auto dim = shape.begin(); dim != tail; ++dim) {
    lead.factor *= dim->factor;
    lead.power += dim->power;
  }
  ir::Shape result = {lead};
  result.insert(result.end(), tail, shape.end());
  return result;
}

std::string kernel(const NodeView& node, size_t axes) {
  return text(mode_of(node) == "reflect" ? "reflection" : "replication", "_pad", axes, "d");
}

/// LibTorch rejects a fill value that 16 bits cannot represent.
bool has_wide_fill(const NodeView& node) { return !fits_float16(node.attributes().get_double("value", 0)); }

void emit_pad(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::TensorType &from = node.input(0).type, &to = node.output(0).type;
  const std::vector<Padding> padding = padding_of(node, from.shape.size()).value();
  const size_t axes = padded_axes(padding);
  if (axes == 0) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  if (mode_of(node) == "constant") {
    const double value = node.attributes().get_double("value", 0);
    const std::string fill = to.dtype == ir::DType::kBool ? boolean(value != 0) : number(value);
    return emitter.assign(
        0, text("at::constant_pad_nd(", emitter.in(0), ", ", aten_pads(padding, padding.size()), ", ", fill, ")"),
        "ATen/ops/constant_pad_nd.h");
  }
  emitter.assign(
      0,
      text("at::", kernel(node, axes), "(", emitter.in(0), ".reshape(", emitter.dims(joined(from.shape, axes)), "), ",
           aten_pads(padding, axes), ").reshape(", emitter.dims(to.shape), ")"),
      text("ATen/ops/", kernel(node, axes), ".h"));
}

Status pad_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  builder.set_input_gradient(0, builder.add_one(0, "PadGrad", {builder.output_gradient(0)}, attributes));
  return Ok{};
}

/// {shape: of the padded input, and Pad's attributes}
Inferred infer_pad_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY(const ir::Shape large, padded(node, shape));
  if (large != node.input(0).type.shape) return bad_model(node, "does not fit its padding");
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

void emit_pad_gradient(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const ir::Shape &large = node.input(0).type.shape, &shape = node.output(0).type.shape;
  const std::vector<Padding> padding = padding_of(node, shape.size()).value();
  const size_t axes = padded_axes(padding);
  if (axes == 0) return assign_pattern(emitter, "at::alias($0)", "ATen/ops/alias.h");
  if (mode_of(node) == "constant") {
    return emitter.assign(
        0, text("at::constant_pad_nd(", emitter.in(0), ", ", aten_pads(padding, padding.size(), -1), ", 0.0)"),
        "ATen/ops/constant_pad_nd.h");
  }
  // The kernel only reads the shape of the padded input.
  emitter.assign(
      0,
      text("at::", kernel(node, axes), "_backward(", emitter.in(0), ".reshape(", emitter.dims(joined(large, axes)),
           "), ", emitter.in(0), ".new_empty(", emitter.dims(joined(shape, axes)), "), ", aten_pads(padding, axes),
           ").reshape(", emitter.dims(shape), ")"),
      text("ATen/ops/", kernel(node, axes), "_backward.h"));
}

ir::Attributes pads(std::vector<int64_t> list, std::string mode = "constant") {
  return {{"pads", std::move(list)}, {"mode", std::move(mode)}};
}

}  // namespace

std::span<const OpDef> pad_ops() {
  ir::Attributes filled = pads({0, 1, 0, 2});
  filled.set("value", -1.5);
  ir::Attributes gradient = pads({0, 1, 0, 2});
  gradient.set("shape", shape_of({kB, 3}));
  static const std::vector<OpDef> rows = {
      {.name = "Pad",
       .keeps_float32 = has_wide_fill,
       .infer = infer_pad,
       .work = copy_work,
       .gradient = pad_gradient,
       .emit = emit_pad,
       .examples = {{.inputs = {normal({kB, 3})}, .attributes = filled},
                    {.inputs = {normal({kB, 4, 3})}, .attributes = pads({0, -1, 2, 0, 1, -1})},
                    {.inputs = {normal({kB, 2, 4})}, .attributes = pads({0, 0, 2, 0, 0, 1}, "reflect")},
                    {.inputs = {normal({kB, 2, 3, 4})}, .attributes = pads({0, 0, 1, 2, 0, 0, 0, 3}, "reflect")},
                    {.inputs = {normal({kB, 2, 3})}, .attributes = pads({0, 1, 2, 0, 3, 0}, "edge")},
                    {.inputs = {normal({kB, 2, 3})}, .attributes = pads({0, 0, 1, 0, 0, 2}, "edge")},
                    {.inputs = {normal({kB, 2, 3, 2, 3})}, .attributes = pads({0, 0, 1, 0, 2, 0, 0, 2, 1, 1}, "edge")},
                    {.inputs = {normal({kB, 2, 3, 2, 3})},
                     .attributes = pads({0, 0, 1, 0, 2, 0, 0, 2, 1, 1}, "reflect")}}},
      {.name = "PadGrad",
       .infer = infer_pad_gradient,
       .work = copy_work,
       .temporaries = 0.6,
       .emit = emit_pad_gradient,
       .examples = {{.inputs = {normal({kB, 6})}, .attributes = gradient}}},
  };
  return rows;
}

}  // namespace graphpipe::ops
