// Col2Im: the sum of overlapping blocks; axis by axis the adjoint of extracting frames from an axis.

#include <algorithm>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Ints = std::vector<int64_t>;

/// One axis of the image: `positions` blocks of `block` cells, `dilation` apart, one every `stride`.
struct BlockAxis {
  int64_t image = 0, block = 0, dilation = 1, stride = 1, begin = 0, end = 0;

  int64_t padded() const { return image + begin + end; }
  int64_t span() const { return dilation * (block - 1) + 1; }
  int64_t positions() const { return padded() < span() ? 0 : (padded() - span()) / stride + 1; }
};

class BlockSum {
 public:
  explicit BlockSum(NodeContext& context) : context_(context) {}
  Status run();

 private:
  Status read_axes();
  Result<ValueId> blocks_beside_positions();
  Result<ValueId> join(ValueId value, size_t axis);
  Result<ValueId> without_pads(ValueId value);
  Shape shape_of(ValueId value) { return context_.lowering().graph().value(value).type.shape; }

  NodeContext& context_;
  std::vector<BlockAxis> axes_;
  Dim channels_;
};

Status BlockSum::read_axes() {
  GP_TRY(const Ints image, context_.integers(1, "image shape"));
  GP_TRY(const Ints block, context_.integers(2, "block shape"));
  const size_t rank = image.size();
  const Ints dilations = context_.ints_attribute("dilations", Ints(rank, 1)),
             strides = context_.ints_attribute("strides", Ints(rank, 1)),
             pads = context_.ints_attribute("pads", Ints(2 * rank, 0));
  const auto sane = [](const Ints& numbers, int64_t min_value) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](int64_t number) { return number >= min_value && number < (int64_t{1} << 20); });
  };
  bool fits = rank >= 1 && rank <= 6 && block.size() == rank && dilations.size() == rank && strides.size() == rank &&
              pads.size() == 2 * rank && sane(image, 1) && sane(block, 1) && sane(dilations, 1) && sane(strides, 1) &&
              sane(pads, 0);
  const Shape& x = context_.type(0).shape;
  Dim cells = Dim::fixed(1), positions = Dim::fixed(1);
  for (size_t i = 0; fits && i < rank; ++i) {
    axes_.push_back({image[i], block[i], dilations[i], strides[i], pads[i], pads[i + rank]});
    const std::optional<Dim> all_cells = ir::element_count({cells, Dim::fixed(block[i])}),
                             all_positions = ir::element_count({positions, Dim::fixed(axes_[i].positions())});
    fits = all_cells && all_positions && all_positions->factor > 0;
    if (!fits) break;
    cells = *all_cells;
    positions = *all_positions;
  }
  fits = fits && x.size() == 3 && x[1].is_fixed() && x[1].factor % cells.factor == 0 && x[2] == positions;
  if (!fits)
    return context_.problem(Code::kBadModel, "its blocks and its image do not fit its input", "export the model again");
  channels_ = Dim::fixed(x[1].factor / cells.factor);
  return Ok{};
}

/// [N, C, positions 1, cells 1, positions 2, cells 2, ..] from [N, C * cells, positions].
Result<ValueId> BlockSum::blocks_beside_positions() {
  Shape apart{context_.type(0).shape[0], channels_};
  Ints order{0, 1};
  const auto rank = static_cast<int64_t>(axes_.size());
  for (const BlockAxis& axis : axes_) apart.push_back(Dim::fixed(axis.block));
  for (const BlockAxis& axis : axes_) apart.push_back(Dim::fixed(axis.positions()));
  for (int64_t i = 0; i < rank; ++i) {
    order.push_back(2 + rank + i);
    order.push_back(2 + i);
  }
  GP_TRY(const ValueId input, context_.value(0));
  GP_TRY(const ValueId value, context_.emit_one("Reshape", {input}, {{"shape", std::move(apart)}}));
  return context_.emit_one("Transpose", {value}, {{"perm", std::move(order)}});
}

/// Turns the positions and cells of an axis into its padded image. The earlier axes are still separate.
Result<ValueId> BlockSum::join(ValueId value, size_t axis) {
  const BlockAxis& form = axes_[axis];
  const auto place = static_cast<int64_t>(2 + 2 * axis);
  Shape shape = shape_of(value);
  if (form.dilation > 1) {
    shape[static_cast<size_t>(place) + 1] = Dim::fixed(form.span());
    GP_TRY(value, context_.emit_one("SliceGrad", {value},
                                    {{"starts", Ints{0}},
                                     {"ends", Ints{form.span()}},
                                     {"axes", Ints{place + 1}},
                                     {"steps", Ints{form.dilation}},
                                     {"shape", shape}}));
  }
  shape.erase(shape.begin() + place);
  shape[static_cast<size_t>(place)] = Dim::fixed(form.padded());
  return context_.emit_one(
      "FramesGrad", {value},
      {{"axis", place}, {"length", form.span()}, {"step", form.stride}, {"shape", std::move(shape)}});
}

Result<ValueId> BlockSum::without_pads(ValueId value) {
  Ints starts, ends, axes;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].begin == 0 && axes_[i].end == 0) continue;
    starts.push_back(axes_[i].begin);
    ends.push_back(axes_[i].begin + axes_[i].image);
    axes.push_back(static_cast<int64_t>(i) + 2);
  }
  if (axes.empty()) return value;
  const Ints steps(axes.size(), 1);
  return context_.emit_one("Slice", {value}, {{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}});
}

Status BlockSum::run() {
  GP_TRY_VOID(read_axes());
  GP_TRY(ValueId value, blocks_beside_positions());
  for (size_t axis = axes_.size(); axis-- > 0;) {
    GP_TRY(value, join(value, axis));
  }
  GP_TRY(value, without_pads(value));
  context_.bind(0, value);
  return Ok{};
}

Status lower_col2im(NodeContext& context) { return BlockSum(context).run(); }

}  // namespace

std::vector<HandlerEntry> col2im_handlers() { return {{"Col2Im", lower_col2im}}; }

}  // namespace graphpipe::frontend
