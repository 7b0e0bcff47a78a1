#include "ops/spatial.h"

#include <algorithm>

#include "ops/emit_helpers.h"

namespace graphpipe::ops {
namespace {

// Far above real windows, and far below where sums of a few such numbers could overflow.
constexpr int64_t kMaxCells = int64_t{1} << 40;

Result<std::vector<int64_t>> list_attribute(const NodeView& node, std::string_view name, size_t count, int64_t fallback,
                                            int64_t min_value) {
  std::vector<int64_t> values = node.attributes().get_ints(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) return bad_model(node, text("has ", values.size(), " ", name, ", needs ", count));
  for (int64_t value : values) {
    if (value < min_value || value >= kMaxCells) return bad_model(node, text("has ", value, " among its ", name));
  }
  return values;
}

}  // namespace

Result<std::vector<int64_t>> spatial_sizes(const NodeView& node, const ir::Shape& shape) {
  if (shape.size() < 3 || shape.size() > 5) {
    return problem_at(node, Code::kUnsupportedOp,
                      text("needs one to three axes after [N, C], found ", shape_text(shape)),
                      "reshape to rank 3, 4 or 5");
  }
  std::vector<int64_t> sizes;
  for (size_t axis = 2; axis < shape.size(); ++axis) {
    if (!shape[axis].is_fixed()) {
      return problem_at(node, Code::kMixesSamples, text("moves a window over the batch, axis ", axis),
                        "put the samples on axis 0");
    }
    sizes.push_back(shape[axis].factor);
  }
  return sizes;
}

Result<Window> window_of(const NodeView& node, std::vector<int64_t> kernel) {
  const std::string auto_pad = node.attributes().get_string("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") {
    return problem_at(node, Code::kUnsupportedOp, "still has auto_pad", "write the pads out in the model");
  }
  const size_t rank = kernel.size();
  for (int64_t size : kernel) {
    if (size < 1 || size >= kMaxCells) return bad_model(node, text("has a kernel of size ", size));
  }
  Window window;
  window.kernel = std::move(kernel);
  GP_TRY(window.strides, list_attribute(node, "strides", rank, 1, 1));
  GP_TRY(window.dilations, list_attribute(node, "dilations", rank, 1, 1));
  GP_TRY(const std::vector<int64_t> pads, list_attribute(node, "pads", 2 * rank, 0, 0));
  window.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
  window.end.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());
  for (size_t axis = 0; axis < rank; ++axis) {
    int64_t span = 0;
    if (__builtin_mul_overflow(window.dilations[axis], window.kernel[axis] - 1, &span) || span >= kMaxCells) {
      return bad_model(node, "has an impossible dilation");
    }
  }
  return window;
}

int64_t position_count(const Window& window, size_t axis, int64_t size, bool rounds_up) {
  const int64_t stride = window.strides[axis];
  // When rounding up, one window may start in an input that is smaller than the window.
  const int64_t room = size + window.begin[axis] + window.end[axis] - window.span(axis) + (rounds_up ? stride - 1 : 0);
  if (room < 0) return 0;
  int64_t count = room / stride + 1;
  if (rounds_up && (count - 1) * stride >= size + window.begin[axis]) --count;
  return count;
}

std::vector<int64_t> innermost_first(const std::vector<int64_t>& begin, const std::vector<int64_t>& end) {
  std::vector<int64_t> pads;
  for (size_t axis = begin.size(); axis-- > 0;) {
    pads.push_back(begin[axis]);
    pads.push_back(end[axis]);
  }
  return pads;
}

std::vector<int64_t> negated(std::vector<int64_t> values) {
  for (int64_t& value : values) value = -value;
  return values;
}

std::string padded(Emitter& emitter, const std::string& expression, const std::vector<int64_t>& begin,
                   const std::vector<int64_t>& end, const std::string& value) {
  emitter.include("ATen/ops/constant_pad_nd.h");
  return text("at::constant_pad_nd(", expression, ", ", list(innermost_first(begin, end)), ", ", value, ")");
}

std::string shape_only(const std::string& like, const std::string& dims) {
  return text(like, ".new_empty({1}).expand(", dims, ")");
}

}  // namespace graphpipe::ops
