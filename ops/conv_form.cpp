#include "ops/conv_form.h"

#include <algorithm>

#include "ops/infer_helpers.h"

namespace graphpipe::ops {

bool is_transposed(const NodeView& node) { return node.node().op.starts_with("ConvTranspose"); }

std::vector<int64_t> fixed_sizes(ir::Shape::const_iterator begin, ir::Shape::const_iterator end) {
  std::vector<int64_t> sizes;
  std::transform(begin, end, std::back_inserter(sizes), [](ir::Dim dim) { return dim.factor; });
  return sizes;
}

bool is_plane(const NodeView& node, const ConvForm& form) {
  return !is_transposed(node) && form.groups == 1 && form.sizes.size() == 2;
}

bool is_depthwise(const NodeView& node, const ConvForm& form, const ir::Shape& x, const ir::Shape& weight) {
  return !is_transposed(node) && form.groups > 1 && form.groups == x[1].factor && form.groups == weight[0].factor &&
         form.sizes.size() <= 2;
}

Result<ConvForm> conv_form(const NodeView& node, const ir::Shape& x, const ir::Shape& weight) {
  ConvForm form;
  GP_TRY(form.sizes, spatial_sizes(node, x));
  const auto has_size = [](ir::Dim dim) { return dim.is_fixed() && dim.factor > 0; };
  if (weight.size() != x.size() || !has_size(x[1]) || !std::ranges::all_of(weight, has_size)) {
    return bad_model(node, text("cannot convolve ", shape_text(x), " with ", shape_text(weight)));
  }
  GP_TRY(form.window, window_of(node, fixed_sizes(weight.begin() + 2, weight.end())));
  const std::vector<int64_t> kernel = node.attributes().get_ints("kernel_shape", form.window.kernel);
  if (kernel != form.window.kernel) return bad_model(node, "has a kernel_shape other than that of its weight");
  form.groups = node.attributes().get_int("group", 1);
  form.output_padding = node.attributes().get_ints("output_padding");
  if (form.output_padding.empty()) form.output_padding.assign(form.sizes.size(), 0);
  if (form.groups < 1 || form.output_padding.size() != form.sizes.size()) {
    return bad_model(node, text("has ", form.groups, " groups or output_padding of another rank"));
  }
  return form;
}

}  // namespace graphpipe::ops
