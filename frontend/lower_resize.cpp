// Resize: ATen's own function if it computes the same, otherwise one matrix product per axis.

#include <algorithm>
#include <cmath>

#include "frontend/node_context.h"
#include "frontend/resize_weights.h"

namespace graphpipe::frontend {
namespace {

/// Larger weights would dominate the program's data.
constexpr int64_t kMaxResizeWeights = int64_t{1} << 22;

class Resize {
 public:
  explicit Resize(NodeContext& context) : context_(context), shape_(context.type(0).shape) {}

  Status run();

 private:
  Status read_axes();
  Status read_scales();
  Status read_sizes();
  bool is_traced_batch(ir::Dim size, ir::Dim axis) const;
  Status read_crop();
  bool aten_agrees() const;
  Result<ir::ValueId> by_aten(ir::ValueId input);
  Result<ir::ValueId> by_matrices(ir::ValueId input);
  Result<ir::ValueId> resize_axis(ir::ValueId input, size_t axis);
  Result<ir::ValueId> constant(std::string_view what, ir::Shape shape, const std::vector<double>& numbers);
  bool changes(size_t axis) const { return resized_[axis].before != resized_[axis].after || resized_[axis].scale != 1; }
  Diagnostic bad(std::string message) const {
    return context_.problem(Code::kBadModel, std::move(message), "export the model again");
  }

  NodeContext& context_;
  const ir::Shape shape_;
  ResizeForm form_;
  /// The axes that the operands refer to, in their order; and the result for all axes.
  std::vector<int64_t> axes_;
  std::vector<ResizedAxis> resized_;
  bool has_scales_ = false, crops_ = false;
};

Status Resize::read_axes() {
  std::vector<int64_t> all(shape_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  for (const int64_t axis : context_.ints_attribute("axes", all)) {
    GP_TRY(const int64_t one, context_.axis(axis, shape_.size()));
    if (std::ranges::find(axes_, one) != axes_.end()) return bad("names an axis twice");
    axes_.push_back(one);
  }
  for (const ir::Dim dim : shape_) {
    ResizedAxis axis;
    axis.before = axis.after = dim.is_fixed() ? dim.factor : 0;
    resized_.push_back(axis);
  }
  return Ok{};
}

Status Resize::read_scales() {
  GP_TRY(const std::vector<double> scales, context_.reals(2, "scales"));
  if (scales.size() != axes_.size()) return bad("has another number of scales than of axes");
  has_scales_ = true;
  for (size_t i = 0; i < scales.size(); ++i) {
    ResizedAxis& axis = resized_[static_cast<size_t>(axes_[i])];
    // In float, as ONNX's inference does: the float nearest to 0.7 is below it, and 10 rows become 7.
    const double size = std::floor(static_cast<float>(axis.before) * static_cast<float>(scales[i]));
    axis.scale = scales[i];
    axis.after = size >= 1 && size < 0x1p40 ? static_cast<int64_t>(size) : 0;
  }
  return Ok{};
}

/// In a file with a fixed batch n, the axis of the batch keeps its size n.
bool Resize::is_traced_batch(ir::Dim size, ir::Dim axis) const {
  const int64_t traced = context_.lowering().traced_batch();
  return traced > 0 && !axis.is_fixed() && size.is_fixed() && ir::size_at(axis, Samples(traced)) == size.factor;
}

Status Resize::read_sizes() {
  GP_TRY(const ir::Shape sizes, context_.dims(3, "sizes"));
  if (sizes.size() != axes_.size()) return bad("has another number of sizes than of axes");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto at = static_cast<size_t>(axes_[i]);
    if (sizes[i] == shape_[at] || is_traced_batch(sizes[i], shape_[at])) continue;
    ResizedAxis& axis = resized_[at];
    if (!sizes[i].is_fixed() || axis.before < 1) axis.scale = 0, axis.after = 0;
    else axis.after = sizes[i].factor, axis.scale = static_cast<double>(axis.after) / static_cast<double>(axis.before);
  }
  const std::string policy = context_.string_attribute("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || axes_.empty()) return Ok{};
  if (policy != "not_larger" && policy != "not_smaller") return bad("has an unknown keep_aspect_ratio_policy");
  const auto scale_of = [this](int64_t axis) { return resized_[static_cast<size_t>(axis)].scale; };
  double scale = scale_of(axes_[0]);
  for (const int64_t axis : axes_)
    scale = policy == "not_larger" ? std::min(scale, scale_of(axis)) : std::max(scale, scale_of(axis));
  for (const int64_t at : axes_) {
    ResizedAxis& axis = resized_[static_cast<size_t>(at)];
    const double size = std::floor(static_cast<double>(axis.before) * scale + 0.5);
    axis.scale = scale;
    axis.after = size >= 1 && size < 0x1p40 ? static_cast<int64_t>(size) : 0;
  }
  return Ok{};
}

Status Resize::read_crop() {
  crops_ = form_.coordinates == "tf_crop_and_resize";
  if (!crops_) return Ok{};
  GP_TRY(const std::vector<double> region, context_.reals(1, "region"));
  if (region.size() != 2 * axes_.size()) return bad("has a region that does not fit its axes");
  for (size_t i = 0; i < axes_.size(); ++i) {
    ResizedAxis& axis = resized_[static_cast<size_t>(axes_[i])];
    axis.crop_start = region[i];
    axis.crop_end = region[i + axes_.size()];
    if (std::abs(axis.crop_start) > 1e6 || std::abs(axis.crop_end) > 1e6 || std::isnan(region[i]) ||
        std::isnan(region[i + axes_.size()]))
      return bad("has a region that is no region");
  }
  return Ok{};
}

/// ATen aligns the corners of whole cells, ONNX those of the scaled length. The dictionary's entry knows which of the
/// other forms ATen has.
bool Resize::aten_agrees() const {
  if (form_.antialias || form_.exclude_outside || crops_ ||
      context_.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch")
    return false;
  if (form_.coordinates != "align_corners" || !has_scales_) return true;
  return std::ranges::all_of(resized_, [](const ResizedAxis& axis) {
    return static_cast<double>(axis.before) * axis.scale == static_cast<double>(axis.after);
  });
}

Result<ir::ValueId> Resize::by_aten(ir::ValueId input) {
  ir::Attributes attributes{{"mode", form_.mode},
                            {"coordinate_transformation_mode", form_.coordinates},
                            {"nearest_mode", form_.rounding},
                            {"cubic_coeff_a", form_.cubic}};
  if (has_scales_) {
    std::vector<double> scales;
    for (const ResizedAxis& axis : resized_) scales.push_back(axis.scale);
    attributes.set("scales", std::move(scales));
  } else {
    ir::Shape sizes = shape_;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (changes(i)) sizes[i] = ir::Dim::fixed(resized_[i].after);
    attributes.set("sizes", std::move(sizes));
  }
  return context_.emit_one("Resize", {input}, std::move(attributes));
}

Result<ir::ValueId> Resize::constant(std::string_view what, ir::Shape shape, const std::vector<double>& numbers) {
  return context_.constant(what, context_.type(0).dtype, std::move(shape), numbers);
}

/// Moves the axis to the end, multiplies by its matrix and moves it back.
Result<ir::ValueId> Resize::resize_axis(ir::ValueId input, size_t axis) {
  const ResizedAxis& resized = resized_[axis];
  GP_TRY_VOID(context_.has_room_for(resized.before * resized.after));
  const ResizeWeights weights = resize_weights(form_, resized);
  std::vector<int64_t> swap(shape_.size());
  for (size_t i = 0; i < swap.size(); ++i) swap[i] = static_cast<int64_t>(i);
  std::swap(swap[axis], swap.back());
  const bool moves = axis + 1 != shape_.size();
  ir::ValueId value = input;
  if (moves) {
    GP_TRY(value, context_.emit_one("Transpose", {value}, {{"perm", swap}}));
  }
  const ir::Dim before = ir::Dim::fixed(resized.before), after = ir::Dim::fixed(resized.after);
  GP_TRY(const ir::ValueId matrix, constant(text("weights", axis), {before, after}, weights.matrix));
  GP_TRY(value, context_.emit_one("MatMul", {value, matrix}, {}));
  const double beyond = context_.float_attribute("extrapolation_value", 0);
  if (beyond != 0 && std::ranges::find(weights.outside, true) != weights.outside.end()) {
    std::vector<double> added(weights.outside.size());
    std::ranges::transform(weights.outside, added.begin(), [beyond](bool outside) { return outside ? beyond : 0; });
    GP_TRY(const ir::ValueId outside, constant(text("outside", axis), {after}, added));
    GP_TRY(value, context_.emit_one("Add", {value, outside}, {}));
  }
  if (moves) {
    GP_TRY(value, context_.emit_one("Transpose", {value}, {{"perm", swap}}));
  }
  return value;
}

Result<ir::ValueId> Resize::by_matrices(ir::ValueId input) {
  if (!has_resize_weights(form_) || !std::isfinite(form_.cubic))
    return context_.problem(Code::kUnsupportedOp, "its mode is unknown", "use nearest, linear or cubic");
  ir::ValueId value = input;
  for (size_t axis = 0; axis < resized_.size(); ++axis) {
    const ResizedAxis& resized = resized_[axis];
    const bool crops = crops_ && (resized.crop_start != 0 || resized.crop_end != 1);
    if (!changes(axis) && !crops) continue;
    if (!shape_[axis].is_fixed())
      return context_.problem(Code::kMixesSamples, "resizes the axis of the samples", "resize other axes");
    if (resized.before < 1 || resized.after < 1 || !(resized.scale > 0))
      return bad("gives an output without cells, or one that depends on the batch");
    if (resized.before > kMaxResizeWeights / resized.after)
      return context_.problem(Code::kLimitExceeded, "this form of it takes too large a matrix of weights",
                              "use a form of torch.nn.functional.interpolate without antialias");
    GP_TRY(value, resize_axis(value, axis));
  }
  return value;
}

Status Resize::run() {
  form_ = {.mode = context_.string_attribute("mode", "nearest"),
           .coordinates = context_.string_attribute("coordinate_transformation_mode", "half_pixel"),
           .rounding = context_.string_attribute("nearest_mode", "round_prefer_floor"),
           .cubic = context_.float_attribute("cubic_coeff_a", -0.75),
           .antialias = context_.int_attribute("antialias", 0) != 0,
           .exclude_outside = context_.int_attribute("exclude_outside", 0) != 0};
  if (!ir::is_floating(context_.type(0).dtype))
    return context_.problem(Code::kUnsupportedType, "resizes integers", "cast its input to a floating type");
  GP_TRY_VOID(read_axes());
  const bool has_sizes = context_.has_input(3);
  GP_TRY_VOID(has_sizes ? read_sizes() : read_scales());
  GP_TRY_VOID(read_crop());
  GP_TRY(const ir::ValueId input, context_.value(0));
  if (aten_agrees()) {
    const Result<ir::ValueId> made = by_aten(input);
    if (made.ok()) {
      context_.bind(0, *made);
      return Ok{};
    }
    if (made.problems().front().code != Code::kUnsupportedOp) return made.problems();
  }
  GP_TRY(const ir::ValueId made, by_matrices(input));
  if (made == input) context_.bind_alias();
  else context_.bind(0, made);
  return Ok{};
}

Status lower_resize(NodeContext& context) { return Resize(context).run(); }

}  // namespace

std::vector<HandlerEntry> resize_handlers() { return {{"Resize", lower_resize}}; }

}  // namespace graphpipe::frontend
