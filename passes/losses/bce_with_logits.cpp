// bce:OUTPUT,LABEL: binary cross entropy of logits, mean over all elements.

#include "passes/losses/loss_def.h"

namespace graphpipe::passes {
namespace {

constexpr std::string_view kSigmoid[] = {"Sigmoid"};

Result<AttachedLoss> attach_bce_with_logits(LossBuilder& builder, ir::ValueId output) {
  return builder.mean_over_elements("BceWithLogitsSum", output);
}

}  // namespace

extern const LossDef kBceWithLogitsLoss = {
    .name = "bce", .takes_label = true, .own_activations = kSigmoid, .attach = attach_bce_with_logits};

}  // namespace graphpipe::passes
