// Resize of [N, C, ...] over one to three spatial axes, in the forms that ATen computes identically:
//  - nearest: asymmetric with floor; half_pixel with rounding of ties up, or with whole scales, which have no ties;
//  - linear: half_pixel and align_corners;
//  - cubic (two axes, coefficient -0.75): half_pixel and align_corners.
// pytorch_half_pixel is half_pixel but for outputs of one cell. The scale that the model gives is used, not the ratio
// of the sizes.

#include <algorithm>
#include <cmath>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/spatial.h"

namespace graphpipe::ops {
namespace {

struct ResizeForm {
  std::vector<int64_t> inputs, outputs;  // spatial sizes
  std::vector<double> scales;            // spatial, empty where the model gives sizes
  /// "at::" name without backward, such as upsample_nearest2d.
  std::string function;
  bool takes_corners = false, aligns_corners = false;
};

Diagnostic unsupported(const NodeView& node, std::string_view what) {
  return problem_at(node, Code::kUnsupportedOp, what,
                    "use torch.nn.functional.interpolate, or nearest with asymmetric and floor, or linear with "
                    "half_pixel");
}

// The sizes or scales of all axes; those of N and C must not change anything.
Status read_sizes(const NodeView& node, const ir::Shape& x, ResizeForm& form) {
  const ir::Attributes& attributes = node.attributes();
  if (attributes.has("sizes")) {
    const ir::Shape sizes = attributes.get_shape("sizes");
    if (sizes.size() != x.size()) return bad_model(node, "has sizes of another rank");
    if (sizes[0] != x[0] || sizes[1] != x[1]) return unsupported(node, "resizes samples or channels");
    for (size_t axis = 2; axis < sizes.size(); ++axis)
      form.outputs.push_back(sizes[axis].is_fixed() ? sizes[axis].factor : 0);
    return Ok{};
  }
  const std::vector<double> scales = attributes.get_doubles("scales");
  if (scales.size() != x.size()) return bad_model(node, "has scales of another rank");
  if (scales[0] != 1 || scales[1] != 1) return unsupported(node, "resizes samples or channels");
  form.scales.assign(scales.begin() + 2, scales.end());
  for (size_t axis = 0; axis < form.scales.size(); ++axis) {
    // In float, as ONNX's inference does.
    const double size = std::floor(static_cast<float>(form.inputs[axis]) * static_cast<float>(form.scales[axis]));
    form.outputs.push_back(size >= 1 && size < 0x1p40 ? static_cast<int64_t>(size) : 0);
  }
  return Ok{};
}

// Whether rounding down and rounding up give the same cell everywhere.
bool has_no_ties(const ResizeForm& form) {
  for (size_t axis = 0; axis < form.inputs.size(); ++axis) {
    const bool is_whole = form.scales.empty() ? form.outputs[axis] % form.inputs[axis] == 0
                                              : form.scales[axis] == std::floor(form.scales[axis]);
    if (!is_whole) return false;
  }
  return true;
}

Result<std::string> nearest_function(const NodeView& node, const ResizeForm& form, const std::string& coordinates) {
  const std::string rounding = node.attributes().get_string("nearest_mode", "round_prefer_floor");
  if (coordinates == "asymmetric" && rounding == "floor") return std::string("upsample_nearest");
  const bool rounds = rounding == "round_prefer_ceil" || (rounding == "round_prefer_floor" && has_no_ties(form));
  if (coordinates == "half_pixel" && rounds) return std::string("_upsample_nearest_exact");
  return unsupported(node, "picks the nearest cell in an unsupported way");
}

Status choose_function(const NodeView& node, ResizeForm& form) {
  const ir::Attributes& attributes = node.attributes();
  const std::string mode = attributes.get_string("mode", "nearest");
  std::string coordinates = attributes.get_string("coordinate_transformation_mode", "half_pixel");
  const bool has_single = std::ranges::find(form.outputs, 1) != form.outputs.end();
  if (coordinates == "pytorch_half_pixel" && !has_single) coordinates = "half_pixel";
  const std::string suffix = text(form.inputs.size(), "d");
  if (mode == "nearest") {
    GP_TRY(const std::string name, nearest_function(node, form, coordinates));
    form.function = name + suffix;
    return Ok{};
  }
  form.takes_corners = true;
  form.aligns_corners = coordinates == "align_corners";
  if (!form.aligns_corners && coordinates != "half_pixel")
    return unsupported(node, "interpolates with unsupported coordinates");
  constexpr std::string_view kLinear[] = {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"};
  if (mode == "linear") form.function = kLinear[form.inputs.size() - 1];
  const bool is_cubic =
      mode == "cubic" && form.inputs.size() == 2 && attributes.get_double("cubic_coeff_a", -0.75) == -0.75;
  if (is_cubic) form.function = "upsample_bicubic2d";
  if (form.function.empty()) return unsupported(node, "interpolates in an unsupported mode");
  return Ok{};
}

Result<ResizeForm> resize_form(const NodeView& node, const ir::Shape& x) {
  ResizeForm form;
  GP_TRY(form.inputs, spatial_sizes(node, x));
  GP_TRY_VOID(read_sizes(node, x, form));
  const auto is_empty = [](int64_t size) { return size < 1; };
  if (std::ranges::any_of(form.inputs, is_empty) || std::ranges::any_of(form.outputs, is_empty)) {
    return bad_model(node, "gives an output without cells, or one that depends on the batch");
  }
  GP_TRY_VOID(choose_function(node, form));
  return form;
}

Inferred infer_resize(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY(const ResizeForm form, resize_form(node, shape));
  for (size_t axis = 0; axis < form.outputs.size(); ++axis) shape[axis + 2] = ir::Dim::fixed(form.outputs[axis]);
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

// At most eight neighbours, with a weight each (sixteen for cubic).
Work resize_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 16); }
Work resize_gradient_work(const NodeView& node, Samples samples) { return per_input_element(node, samples, 16); }

// ", align corners, scale, ..": the trailing arguments of both calls.
std::string tail(const ResizeForm& form) {
  std::string result = form.takes_corners ? ", " + boolean(form.aligns_corners) : "";
  for (size_t axis = 0; axis < form.inputs.size(); ++axis) {
    result += form.scales.empty() ? ", std::optional<double>()"
                                  : text(", std::optional<double>(", number(form.scales[axis]), ")");
  }
  return result + ")";
}

void emit_resize(Emitter& emitter) {
  const ResizeForm form = resize_form(emitter.node(), emitter.node().input(0).type.shape).value();
  emitter.assign(
      0, text("at::", form.function, "(", emitter.in(0), ", at::IntArrayRef(", list(form.outputs), ")", tail(form)),
      text("ATen/ops/", form.function, ".h"));
}

Status resize_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  builder.set_input_gradient(0, builder.add_one(0, "ResizeGrad", {builder.output_gradient(0)}, std::move(attributes)));
  return Ok{};
}

Inferred infer_resize_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(resize_form(node, shape));
  return one_output(node, {node.input(0).type.dtype, shape});
}

void emit_resize_gradient(Emitter& emitter) {
  const ir::Shape shape = emitter.node().attributes().get_shape("shape");
  const ResizeForm form = resize_form(emitter.node(), shape).value();
  emitter.assign(0,
                 text("at::", form.function, "_backward(", emitter.in(0), ", ", list(form.outputs), ", ",
                      emitter.dims(shape), tail(form)),
                 text("ATen/ops/", form.function, "_backward.h"));
}

// --- entries ---

ir::Attributes way(std::string mode, std::string coordinates, std::string nearest = "round_prefer_floor") {
  return {{"mode", std::move(mode)},
          {"coordinate_transformation_mode", std::move(coordinates)},
          {"nearest_mode", std::move(nearest)}};
}

Example scaled(ir::Attributes attributes, const ExampleShape& x, std::vector<double> scales) {
  attributes.set("scales", std::move(scales));
  return {.inputs = {normal(x)}, .attributes = std::move(attributes)};
}
Example sized(ir::Attributes attributes, const ExampleShape& x, const ExampleShape& sizes) {
  attributes.set("sizes", shape_of(sizes));
  return {.inputs = {normal(x)}, .attributes = std::move(attributes)};
}

std::vector<Example> resize_examples() {
  return {scaled(way("nearest", "asymmetric", "floor"), {kB, 2, 3, 4}, {1, 1, 2, 1.5}),
          scaled(way("nearest", "half_pixel"), {kB, 2, 3}, {1, 1, 3}),
          scaled(way("nearest", "asymmetric", "floor"), {kB, 1, 2, 3, 2}, {1, 1, 2, 2, 2}),
          scaled(way("linear", "half_pixel"), {kB, 2, 3, 4}, {1, 1, 2, 1.5}),
          sized(way("linear", "align_corners"), {kB, 2, 3, 4}, {kB, 2, 5, 3}),
          sized(way("linear", "pytorch_half_pixel"), {kB, 2, 4}, {kB, 2, 7}),
          scaled(way("linear", "half_pixel"), {kB, 1, 2, 3, 2}, {1, 1, 2, 2, 2}),
          scaled(way("cubic", "half_pixel"), {kB, 2, 4, 4}, {1, 1, 2, 2}),
          scaled(way("nearest", "asymmetric", "floor"), {kB, 2, 3}, {1, 1, 2}),
          scaled(way("nearest", "half_pixel"), {kB, 2, 3, 4}, {1, 1, 3, 3}),
          scaled(way("nearest", "half_pixel"), {kB, 1, 2, 3, 2}, {1, 1, 3, 3, 3})};
}

Example gradient_example() {
  ir::Attributes attributes = way("linear", "half_pixel");
  attributes.set("shape", ir::Shape{kB, ir::Dim::fixed(2), ir::Dim::fixed(3)});
  return scaled(std::move(attributes), {kB, 2, 6}, {1, 1, 2});
}

}  // namespace

std::span<const OpDef> resize_ops() {
  static const std::vector<OpDef> rows = {{.name = "Resize",
                                           .precision = Precision::kFloat32,
                                           .infer = infer_resize,
                                           .work = resize_work,
                                           .temporaries = 2,
                                           .gradient = resize_gradient,
                                           .emit = emit_resize,
                                           .examples = resize_examples()},
                                          {.name = "ResizeGrad",
                                           .infer = infer_resize_gradient,
                                           .work = resize_gradient_work,
                                           .emit = emit_resize_gradient,
                                           .examples = {gradient_example()}}};
  return rows;
}

}  // namespace graphpipe::ops
