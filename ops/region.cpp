// RoiAlign (x [N, C, H, W], regions [R, 4], samples [R]){output_height, output_width, sampling_ratio, spatial_scale,
// coordinate_transformation_mode, mode, per_sample}: regions of x, sampled at points between its cells. `samples` gives
// the sample of each region by its index in the batch, so micro-batches cannot be separated. With `per_sample`, k, it
// is absent and region r belongs to sample r / k (passes/separate_samples).

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"

namespace graphpipe::ops {
namespace {

using ir::Dim;
using ir::ValueId;

constexpr std::string_view kRegion = "runtime/kernels/region.h";

int64_t per_sample(const NodeView& node) { return node.attributes().get_int("per_sample", 0); }

/// Types, shapes and attributes of (x, regions, samples), which start at input `first`.
Status check_regions(const NodeView& node, size_t first) {
  GP_TRY_VOID(expect_floating(node, {first, first + 1}));
  GP_TRY_VOID(expect_same_dtype(node, {first, first + 1}));
  GP_TRY_VOID(expect_index(node, {first + 2}));
  const ir::Shape &x = node.input(first).type.shape, &regions = node.input(first + 1).type.shape;
  const ir::Attributes& attributes = node.attributes();
  const int64_t height = attributes.get_int("output_height", 1), width = attributes.get_int("output_width", 1);
  const int64_t points = attributes.get_int("sampling_ratio", 0);
  bool fits = x.size() == 4 && x[1].is_fixed() && x[2].is_fixed() && x[3].is_fixed() && regions.size() == 2 &&
              regions[1] == Dim::fixed(4) && height > 0 && width > 0 && height < 4096 && width < 4096 && points >= 0 &&
              points < 256;
  if (fits && per_sample(node) > 0) fits = regions[0] == Dim{x[0].factor * per_sample(node), x[0].power};
  else if (fits) fits = node.has_input(first + 2) && node.input(first + 2).type.shape == ir::Shape{regions[0]};
  if (!fits) return bad_model(node, text("cannot read ", shape_text(regions), " regions of ", shape_text(x)));
  const std::string mode = attributes.get_string("mode", "avg"),
                    middle = attributes.get_string("coordinate_transformation_mode", "half_pixel");
  if ((mode != "avg" && mode != "max") || (middle != "half_pixel" && middle != "output_half_pixel"))
    return bad_model(node, text("has the modes ", quoted(ModelText(mode)), " and ", quoted(ModelText(middle))));
  return Ok{};
}

Inferred infer_regions(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 3));
  GP_TRY_VOID(check_regions(node, 0));
  const ir::Attributes& attributes = node.attributes();
  const ir::Shape& x = node.input(0).type.shape;
  ir::TensorType type = {node.input(0).type.dtype,
                         {node.input(1).type.shape[0], x[1], Dim::fixed(attributes.get_int("output_height", 1)),
                          Dim::fixed(attributes.get_int("output_width", 1))}};
  const bool mixes = per_sample(node) == 0 && is_batch_axis(node, 0, 0);
  return one_output(node, std::move(type), mixes ? Mixing::kMixes : Mixing::kNone);
}

/// (gradient, x, regions, samples)
Inferred infer_regions_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 4));
  GP_TRY_VOID(check_regions(node, 1));
  return one_output(node, node.input(1).type);
}

/// Four corners per point; the number of points is given, or an estimate.
double points_per_bin(const NodeView& node) {
  const auto points = static_cast<double>(node.attributes().get_int("sampling_ratio", 0));
  return points > 0 ? points * points : 4;
}
Work regions_work(const NodeView& node, Samples samples) {
  return per_output_element(node, samples, 8 * points_per_bin(node));
}
Work regions_gradient_work(const NodeView& node, Samples samples) {
  return per_input_element(node, samples, 8 * points_per_bin(node));
}

std::string form_text(const NodeView& node) {
  const ir::Attributes& attributes = node.attributes();
  const bool half = attributes.get_string("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return text("{.height = ", attributes.get_int("output_height", 1),
              ", .width = ", attributes.get_int("output_width", 1),
              ", .points = ", attributes.get_int("sampling_ratio", 0),
              ", .scale = ", number(attributes.get_double("spatial_scale", 1)), ", .half_pixel = ", boolean(half),
              ", .maximum = ", boolean(attributes.get_string("mode", "avg") == "max"),
              ", .per_sample = ", per_sample(node), "}");
}

void emit_call(Emitter& emitter, std::string_view function, size_t inputs) {
  std::string call = text("graphpipe::runtime::", function, "(");
  for (size_t i = 0; i < inputs; ++i) call += emitter.in(i) + ", ";
  emitter.assign(0, text(call, form_text(emitter.node()), ")"), kRegion);
}
void emit_regions(Emitter& emitter) { emit_call(emitter, "region_values", 3); }
void emit_regions_gradient(Emitter& emitter) { emit_call(emitter, "region_values_gradient", 4); }

Status regions_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  std::vector<ValueId> inputs = {builder.output_gradient(0), builder.input(0), builder.input(1)};
  if (builder.forward().has_input(2)) inputs.push_back(builder.input(2));
  builder.set_input_gradient(0, builder.add_one(0, "RoiAlignGrad", std::move(inputs), builder.forward().attributes()));
  return Ok{};
}

// --- entries ---

/// Regions of about 2 by 2 cells of a 6 by 5 plane.
ir::Attributes reading(int64_t height, int64_t width, int64_t points, std::string mode, std::string middle) {
  return {{"output_height", height}, {"output_width", width},   {"sampling_ratio", points},
          {"spatial_scale", 2.0},    {"mode", std::move(mode)}, {"coordinate_transformation_mode", std::move(middle)}};
}

std::vector<Example> region_examples() {
  Example whole{.inputs = {weight(normal({2, 3, 6, 5})), weight(positive({4, 4})), weight(integers({4}, 0, 2))},
                .attributes = reading(2, 2, 2, "avg", "half_pixel")};
  Example cells = whole, largest = whole, apart = whole;
  cells.attributes = reading(2, 1, 0, "avg", "output_half_pixel");
  largest.attributes = reading(1, 2, 2, "max", "half_pixel");
  apart.inputs = {normal({kB, 3, 6, 5}), positive({ir::Dim{2, 1}, 4}), absent()};
  apart.attributes.set("per_sample", int64_t{2});
  return {whole, cells, largest, apart};
}

}  // namespace

std::span<const OpDef> region_ops() {
  static const std::vector<OpDef> rows = [] {
    Example gradient{.inputs = {normal({ir::Dim{2, 1}, 3, 2, 2}), normal({kB, 3, 6, 5}), positive({ir::Dim{2, 1}, 4})},
                     .attributes = reading(2, 2, 2, "avg", "half_pixel")};
    gradient.attributes.set("per_sample", int64_t{2});
    return std::vector<OpDef>{{.name = "RoiAlign",
                               .precision = Precision::kFloat32,
                               .infer = infer_regions,
                               .work = regions_work,
                               .gradient = regions_gradient,
                               .emit = emit_regions,
                               .constant_inputs = 1U << 1,  // as in torchvision
                               .examples = region_examples()},
                              {.name = "RoiAlignGrad",
                               .infer = infer_regions_gradient,
                               .work = regions_gradient_work,
                               .emit = emit_regions_gradient,
                               .examples = {gradient}}};
  }();
  return rows;
}

}  // namespace graphpipe::ops
