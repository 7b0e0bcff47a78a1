// mse:OUTPUT,LABEL: mean over all elements.

#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

Result<AttachedLoss> attach_mean_squared_error(LossBuilder& builder, ir::ValueId output) {
  const ir::TensorType type = builder.type(output);
  GP_TRY(const int64_t elements, builder.elements_per_sample(output));
  GP_TRY(const ir::ValueId label, builder.label_of(type.dtype, type.shape));
  GP_TRY(const ir::ValueId sum, builder.append("MeanSquaredErrorSum", {output, label}));
  return AttachedLoss{sum, {.elements_per_sample = elements}};
}

}  // namespace

extern const LossDef kMeanSquaredErrorLoss = {.name = "mse", .takes_label = true, .attach = attach_mean_squared_error};

}  // namespace graphpipe::passes
