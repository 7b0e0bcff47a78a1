// mse:OUTPUT,LABEL: mean over all elements.

#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

Result<AttachedLoss> attach_mean_squared_error(LossBuilder& builder, ir::ValueId output) {
  return builder.mean_over_elements("MeanSquaredErrorSum", output);
}

}  // namespace

extern const LossDef kMeanSquaredErrorLoss = {.name = "mse", .takes_label = true, .attach = attach_mean_squared_error};

}  // namespace graphpipe::passes
