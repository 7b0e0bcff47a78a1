// GridSample (x [N, C, ...], grid [N, ..., axes]){mode: linear, nearest or cubic; padding_mode: zeros, border or
// reflection; align_corners}: x sampled at the positions of the grid, in units in which x extends from -1 to 1. Over
// two axes, or three without cubic.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/spatial.h"

namespace graphpipe::ops {
namespace {

using ir::ValueId;

/// ATen's codes for the interpolation and padding modes.
struct SampleForm {
  size_t axes = 2;
  int64_t interpolation = 0, padding = 0;
  bool aligns_corners = false;
};

Diagnostic unknown_way(const NodeView& node, std::string_view what, const std::string& value) {
  return problem_at(node, Code::kUnsupportedOp, text("has the ", what, " ", quoted(ModelText(value))),
                    "use torch.nn.functional.grid_sample");
}

/// Opsets before 20 use the names bilinear and bicubic.
Result<int64_t> interpolation_of(const NodeView& node) {
  const std::string mode = node.attributes().get_string("mode", "linear");
  if (mode == "linear" || mode == "bilinear") return 0;
  if (mode == "nearest") return 1;
  if (mode == "cubic" || mode == "bicubic") return 2;
  return unknown_way(node, "mode", mode);
}

Result<int64_t> padding_mode_of(const NodeView& node) {
  const std::string mode = node.attributes().get_string("padding_mode", "zeros");
  if (mode == "zeros") return 0;
  if (mode == "border") return 1;
  if (mode == "reflection") return 2;
  return unknown_way(node, "padding_mode", mode);
}

Result<SampleForm> sample_form(const NodeView& node, const ir::Shape& x, const ir::Shape& grid) {
  SampleForm form;
  GP_TRY(const std::vector<int64_t> sizes, spatial_sizes(node, x));
  form.axes = sizes.size();
  GP_TRY(form.interpolation, interpolation_of(node));
  GP_TRY(form.padding, padding_mode_of(node));
  form.aligns_corners = node.attributes().get_int("align_corners", 0) != 0;
  if (form.axes < 2 || (form.axes == 3 && form.interpolation == 2))
    return problem_at(node, Code::kUnsupportedOp, text("samples ", form.axes, " axes in this mode"),
                      "sample 2 axes, or 3 with mode linear or nearest");
  const bool fits = grid.size() == x.size() && grid.front() == x.front() &&
                    grid.back() == ir::Dim::fixed(static_cast<int64_t>(form.axes));
  if (!fits) return bad_model(node, text("cannot sample ", shape_text(x), " by ", shape_text(grid)));
  return form;
}

Inferred infer_grid_sample(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  const ir::Shape &x = node.input(0).type.shape, &grid = node.input(1).type.shape;
  GP_TRY_VOID(sample_form(node, x, grid));
  ir::Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

/// A position reads as many cells as it has neighbours, with a weight each.
Work grid_sample_work(const NodeView& node, Samples samples) { return per_output_element(node, samples, 32); }
Work grid_sample_gradient_work(const NodeView& node, Samples samples) { return per_input_element(node, samples, 64); }

/// "interpolation, padding, corners": the trailing arguments of every call.
std::string sampling_arguments(const SampleForm& form) {
  return text(form.interpolation, ", ", form.padding, ", ", boolean(form.aligns_corners));
}

std::string sampler(const SampleForm& form) { return text("grid_sampler_", form.axes, "d"); }

void emit_grid_sample(Emitter& emitter) {
  const NodeView& node = emitter.node();
  const SampleForm form = sample_form(node, node.input(0).type.shape, node.input(1).type.shape).value();
  emitter.assign(
      0, text("at::", sampler(form), "(", emitter.in(0), ", ", emitter.in(1), ", ", sampling_arguments(form), ")"),
      text("ATen/ops/", sampler(form), ".h"));
}

Status grid_sample_gradient(GradientBuilder& builder) {
  const std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(0), builder.input(1)};
  const ir::Attributes& attributes = builder.forward().attributes();
  if (builder.wants(0)) builder.set_input_gradient(0, builder.add_one(0, "GridSampleGradData", inputs, attributes));
  if (builder.wants(1)) builder.set_input_gradient(1, builder.add_one(1, "GridSampleGradGrid", inputs, attributes));
  return Ok{};
}

/// (gradient, x, grid); the result is like input `target`.
Inferred infer_grid_sample_gradient(const NodeView& node, size_t target) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  GP_TRY_VOID(sample_form(node, node.input(1).type.shape, node.input(2).type.shape));
  return one_output(node, node.input(target).type);
}
Inferred infer_gradient_of_sampled(const NodeView& node) { return infer_grid_sample_gradient(node, 1); }
Inferred infer_gradient_of_grid(const NodeView& node) { return infer_grid_sample_gradient(node, 2); }

void emit_grid_sample_gradient(Emitter& emitter, size_t part) {
  const NodeView& node = emitter.node();
  const SampleForm form = sample_form(node, node.input(1).type.shape, node.input(2).type.shape).value();
  emitter.assign(
      0,
      text("std::get<", part, ">(at::", sampler(form), "_backward(", emitter.in(0), ", ", emitter.in(1), ", ",
           emitter.in(2), ", ", sampling_arguments(form), ", {", boolean(part == 0), ", ", boolean(part == 1), "}))"),
      text("ATen/ops/", sampler(form), "_backward.h"));
}
void emit_gradient_of_sampled(Emitter& emitter) { emit_grid_sample_gradient(emitter, 0); }
void emit_gradient_of_grid(Emitter& emitter) { emit_grid_sample_gradient(emitter, 1); }

// --- entries ---

Example sampled(const ExampleShape& x, const ExampleShape& grid, std::string mode, std::string padding, bool corners) {
  return {.inputs = {normal(x), uniform01(grid)},
          .attributes = {{"mode", std::move(mode)},
                         {"padding_mode", std::move(padding)},
                         {"align_corners", int64_t{corners ? 1 : 0}}}};
}

std::vector<OpDef> grid_sample_row() {
  // Positions of kNormal also lie outside the input, where padding matters.
  Example beyond = sampled({kB, 2, 4, 3}, {kB, 3, 2, 2}, "linear", "border", true);
  beyond.inputs[1] = normal({kB, 3, 2, 2});
  Example outside = beyond;
  outside.attributes.set("padding_mode", std::string("zeros"));
  return {{.name = "GridSample",
           .precision = Precision::kFloat32,
           .infer = infer_grid_sample,
           .work = grid_sample_work,
           .gradient = grid_sample_gradient,
           .emit = emit_grid_sample,
           .examples = {sampled({kB, 2, 4, 3}, {kB, 3, 2, 2}, "linear", "zeros", false), beyond, outside,
                        sampled({kB, 1, 3, 4}, {kB, 2, 2, 2}, "nearest", "reflection", false),
                        sampled({kB, 2, 4, 4}, {kB, 2, 3, 2}, "cubic", "reflection", true),
                        sampled({kB, 1, 3, 2, 3}, {kB, 2, 1, 2, 3}, "linear", "zeros", false)}}};
}

std::vector<OpDef> grid_sample_gradient_rows() {
  Example example = sampled({kB, 2, 4, 3}, {kB, 3, 2, 2}, "linear", "zeros", false);
  example.inputs.insert(example.inputs.begin(), normal({kB, 2, 3, 2}));
  return {{.name = "GridSampleGradData",
           .infer = infer_gradient_of_sampled,
           .work = grid_sample_gradient_work,
           .temporaries = 0.75,
           .emit = emit_gradient_of_sampled,
           .examples = {example}},
          {.name = "GridSampleGradGrid",
           .infer = infer_gradient_of_grid,
           .work = grid_sample_gradient_work,
           .emit = emit_gradient_of_grid,
           .examples = {example}}};
}

}  // namespace

std::span<const OpDef> grid_sample_ops() {
  static const std::vector<OpDef> rows = joined({grid_sample_row(), grid_sample_gradient_rows()});
  return rows;
}

}  // namespace graphpipe::ops
