#include "ops/gradient_helpers.h"

namespace graphpipe::ops {

void set_reduced(GradientBuilder& builder, size_t i, ir::ValueId gradient) {
  if (builder.wants(i)) builder.set_input_gradient(i, builder.reduce_to_input(i, gradient));
}

void pass_gradient(GradientBuilder& builder, size_t i) { set_reduced(builder, i, builder.output_gradient(0)); }

ir::Attributes target_attribute(const GradientBuilder& builder, size_t i) {
  return {{"shape", builder.forward().input(i).type.shape}};
}

}  // namespace graphpipe::ops
